"""What each verdict sends to the settling statement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rowsweep.jobs.json_form import json_text
from rowsweep.queue.verdicts import (
    Bury,
    Defer,
    Done,
    Drop,
    GiveBack,
    Park,
    Refuse,
    Retry,
    Shed,
    effect_of,
    wakes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rowsweep.jobs.failure import Failure
    from rowsweep.queue.verdicts import Settlement, Verdict

PARKED_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """The part of a settlement's values that depends on its verdict."""

    delay: float | None = None
    run_at: datetime | None = None
    error: Failure | None = None
    clears_error: bool = False
    result: str | None = None
    pausing: bool = False


def settle_values(settlements: Sequence[Settlement]) -> dict[str, Any]:
    """Answer the arrays of the settling statement, one element a settlement."""
    sent = [_sent(settlement.verdict) for settlement in settlements]
    effects = [effect_of(settlement.verdict) for settlement in settlements]
    errors = [one.error for one in sent]
    return {
        "id": [settlement.claim.job_id for settlement in settlements],
        "worker": [settlement.claim.worker_id for settlement in settlements],
        "claim": [settlement.claim.claim for settlement in settlements],
        "state": [effect.state for effect in effects],
        "gives_back": [effect.gives_back for effect in effects],
        "counter": [effect.counter for effect in effects],
        "delay": [one.delay for one in sent],
        "run_at": [one.run_at for one in sent],
        "sets_error": [error is not None for error in errors],
        "clears_error": [one.clears_error for one in sent],
        "error": [error and error.text for error in errors],
        "error_code": [error and error.code for error in errors],
        "stop_reason": [error and error.stop_reason for error in errors],
        "result": [one.result for one in sent],
        "pausing": [one.pausing for one in sent],
        "wakes": [wakes(settlement.verdict) for settlement in settlements],
        "progress": [_text(settlement.progress) for settlement in settlements],
        "duration": [round(settlement.duration_ms) for settlement in settlements],
        "sweep": [settlement.sweep for settlement in settlements],
    }


def _sent(verdict: Verdict) -> _Sent:
    match verdict:
        case Done():
            return _Sent(clears_error=True, result=_text(verdict.result))
        case Retry() | Defer():
            return _Sent(delay=float(verdict.delay_seconds), error=verdict.error)
        case Bury() | Drop() | Refuse():
            return _Sent(error=verdict.error)
        case Shed():
            return _Sent(delay=float(verdict.delay_seconds))
        case GiveBack():
            return _Sent(delay=0.0)
        case Park():
            delay = PARKED_SECONDS if verdict.delay_seconds is None else float(verdict.delay_seconds)
            return _Sent(run_at=verdict.wake_at, delay=delay, pausing=verdict.pausing)


def _text(value: Any) -> str | None:
    return None if value is None else json_text(value)
