"""What each verdict sends to the settling statement."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rowsweep.jobs.values.json_form import json_text
from rowsweep.queue.postgres.statements.arrays import Longs, Uuids, texts_or_none
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

    from rowsweep.jobs.attempts.failure import Failure
    from rowsweep.queue.verdicts import Settlement, Verdict

PARKED_SECONDS: Final = 3600.0


class _Kind(NamedTuple):
    """What settlements of one kind have in common; the fields are the names of the statement's values."""

    worker: str
    state: str
    gives_back: bool
    counter: str | None
    delay: float | None
    run_at: datetime | None
    sets_error: bool
    clears_error: bool
    error: str | None
    error_code: str | None
    stop_reason: str | None
    pausing: bool
    wakes: bool
    sweep: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """The part of a kind that depends on more than its verdict's class."""

    delay: float | None = None
    run_at: datetime | None = None
    error: Failure | None = None
    pausing: bool = False


def settle_values(settlements: Sequence[Settlement]) -> dict[str, Any]:
    """Answer the arrays of the settling statement: one element a kind, and one a settlement with its kind's number."""
    numbers: dict[_Kind, int] = {}
    kinds, last, number = Longs(), None, 0
    for settlement in settlements:
        kind = _kind(settlement)
        if kind is not last:  # most are the very kind of the one before, whose fields then need no hash
            last, number = kind, numbers.setdefault(kind, len(numbers) + 1)
        kinds.append(number)
    return {
        **dict(zip(_Kind._fields, map(list, zip(*numbers, strict=True)), strict=True)),
        "id": Uuids([settlement.claim.job_id for settlement in settlements]),
        "claim": Longs([settlement.claim.claim for settlement in settlements]),
        "kind": kinds,
        "result": texts_or_none([_result(settlement.verdict) for settlement in settlements]),
        "progress": texts_or_none([_text(settlement.progress) for settlement in settlements]),
        "duration": Longs([round(settlement.duration_ms) for settlement in settlements]),
    }


def _kind(settlement: Settlement) -> _Kind:
    verdict = settlement.verdict
    if isinstance(verdict, Done):
        return _done(settlement.claim.worker_id, settlement.sweep)
    return _kind_of(settlement.claim.worker_id, verdict, _sent(verdict), sweep=settlement.sweep)


@lru_cache(maxsize=64)
def _done(worker_id: str, sweep: bool) -> _Kind:
    return _kind_of(worker_id, Done(), _Sent(), sweep=sweep)


def _kind_of(worker_id: str, verdict: Verdict, sent: _Sent, *, sweep: bool) -> _Kind:
    effect, error = effect_of(verdict), sent.error
    return _Kind(
        worker=worker_id,
        state=effect.state,
        gives_back=effect.gives_back,
        counter=effect.counter,
        delay=sent.delay,
        run_at=sent.run_at,
        sets_error=error is not None,
        clears_error=isinstance(verdict, Done),
        error=None if error is None else error.text,
        error_code=None if error is None else error.code,
        stop_reason=None if error is None else error.stop_reason,
        pausing=sent.pausing,
        wakes=wakes(verdict),
        sweep=sweep,
    )


def _sent(verdict: Verdict) -> _Sent:
    match verdict:
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
        case Done():
            return _Sent()


def _result(verdict: Verdict) -> str | None:
    return _text(verdict.result) if isinstance(verdict, Done) else None


def _text(value: Any) -> str | None:
    return None if value is None else json_text(value)
