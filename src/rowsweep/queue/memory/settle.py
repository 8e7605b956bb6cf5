"""Ending one claim: what each verdict leaves on the job's row and on its ledger row."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from rowsweep.queue.memory import jsonb
from rowsweep.queue.memory.events.store import wake_parked
from rowsweep.queue.memory.ledger.moves import end_backfill, is_pause_wanted, note_error, pause_backfill
from rowsweep.queue.memory.upkeep.buckets import count_end
from rowsweep.queue.verdicts import (
    Bury,
    Defer,
    Done,
    Drop,
    GiveBack,
    Park,
    Refuse,
    Retry,
    Settlement,
    Shed,
    effect_of,
    settled_state,
    wakes,
)

if TYPE_CHECKING:
    from datetime import datetime

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.records import Claim, Job
    from rowsweep.queue.verdicts import Verdict

PARKED_SECONDS: Final = 3600.0


def settle_one(state: State, settlement: Settlement, now: datetime, *, resent: bool) -> bool:
    """Apply one verdict under its claim; False where the fence no longer fits."""
    job = state.held(settlement.claim)
    if job is None:
        return resent and _landed_before(state, settlement.claim, settlement.verdict)
    settled = _settled(job, settlement, now)
    if isinstance(settlement.verdict, Park) and settlement.verdict.pausing:
        if settlement.sweep and is_pause_wanted(state, job):
            pause_backfill(state, job, now)
        else:
            settled = replace(settled, run_at=now)
    elif settlement.sweep:
        _move_ledger(state, settled, settlement.verdict, now)
    state.write(settled, wakes=wakes(settlement.verdict))
    counter = effect_of(settlement.verdict).counter
    if counter is not None:
        count_end(state, job.name, counter, now, duration_ms=settlement.duration_ms)
    if isinstance(settlement.verdict, Park):
        wake_parked(state, settled, now)
    return True


def _landed_before(state: State, claim: Claim, verdict: Verdict) -> bool:
    job = state.jobs.get(claim.job_id)
    asked = (settled_state(verdict), claim.claim, None)
    return job is not None and (job.state, job.claims, job.claimed_by) == asked


def _settled(job: Job, settlement: Settlement, now: datetime) -> Job:
    effect = effect_of(settlement.verdict)
    return replace(
        job,
        state=effect.state,
        attempt=max(job.attempt - 1, 0) if effect.gives_back else job.attempt,
        claimed_by=None,
        visible_at=None,
        run_at=_run_at(job, settlement.verdict, now),
        progress=job.progress if settlement.progress is None else jsonb.bind(settlement.progress),
        updated_at=now,
        **_outcome(settlement.verdict),
    )


def _run_at(job: Job, verdict: Verdict, now: datetime) -> datetime:
    match verdict:
        case Retry() | Defer() | Shed():
            return now + timedelta(seconds=verdict.delay_seconds)
        case Park():
            if job.started_at is not None and job.run_at > job.started_at:
                return now  # made due while it was on its way
            delay = PARKED_SECONDS if verdict.delay_seconds is None else verdict.delay_seconds
            return verdict.wake_at or now + timedelta(seconds=delay)
        case GiveBack():
            return now
        case _:
            return job.run_at


def _outcome(verdict: Verdict) -> dict[str, Any]:
    """Answer the columns a verdict writes; one without an error leaves the last one as it was."""
    match verdict:
        case Done():
            cleared = {"last_error": None, "last_error_code": None, "stop_reason": None}
            return {"result": jsonb.bind(verdict.result), **cleared}
        case Retry() | Defer() | Bury() | Drop() | Refuse():
            error = verdict.error
            return {
                "last_error": error.text,
                "last_error_code": error.code,
                "stop_reason": error.stop_reason,
            }
        case _:
            return {}


def _move_ledger(state: State, job: Job, verdict: Verdict, now: datetime) -> None:
    match verdict:
        case Bury() | Drop() | Refuse():
            end_backfill(state, job, "failed", now)
        case Retry() | Defer():
            note_error(state, job, verdict.error, now)
        case _:
            pass
