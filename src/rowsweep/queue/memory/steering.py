"""Moving jobs by hand in memory: cancel, requeue, remove."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rowsweep.errors import DuplicateJob, JobNotFound, NotRemovable, NotRequeueable
from rowsweep.queue.memory.ledger.moves import end_backfill, reopen_backfill
from rowsweep.queue.memory.state import job_answer, key_of, locked
from rowsweep.queue.records import LIVE_STATES
from rowsweep.queue.refusals import check_from_step

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.records import Job, Step


class MemorySteering:
    """Move jobs by hand, their ledger rows with them."""

    def __init__(self, state: State) -> None:
        self._state = state

    @locked
    def cancel(self, job_id: UUID, *, reason: str | None = None) -> Job | None:
        """Stop a live job; None where it is not live."""
        job = self._state.jobs.get(job_id)
        if job is None or job.state not in LIVE_STATES:
            return None
        return job_answer(cancel_job(self._state, job, reason, self._state.now()))

    @locked
    def requeue(self, job_id: UUID, *, from_step: str | None = None) -> Job:
        """Make a finished job due now with its attempts counted anew; with `from_step` without what came from there."""
        job = self._state.jobs.get(job_id)
        if job is None:
            raise JobNotFound(
                f"no job has the id {job_id}.", fix="rowsweep jobs ls --json", meta={"job_id": str(job_id)}
            )
        later = [] if from_step is None else _steps_from(self._state, job, from_step)
        requeued = requeue_job(self._state, job, self._state.now())
        for step in later:
            del self._state.steps[step.run_id, step.name]
        return job_answer(requeued)

    @locked
    def remove(self, job_id: UUID) -> bool:
        """Delete a job; with the last of a run's jobs go its steps, and its ledger row ends."""
        state = self._state
        job = state.jobs.get(job_id)
        if job is None:
            return False
        if job.state == "running":
            raise NotRemovable(
                f"job {job_id} is running.",
                fix=f"rowsweep jobs cancel {job_id}",
                meta={"job_id": str(job_id), "state": job.state},
            )
        state.remove(job)
        if not state.jobs_of(job.run_id):
            state.remove_steps(job.run_id)
            end_backfill(state, replace(job, last_error=None), "cancelled", state.now())
        return True


def _steps_from(state: State, job: Job, name: str) -> list[Step]:
    """Answer the step of this name and every one that started later, where the run may be taken up from there."""
    if job.state in LIVE_STATES:
        return []
    refuse_taken_key(state, job)
    mine = sorted((step for step in state.steps.values() if step.run_id == job.run_id), key=_step_order)
    first = state.steps.get((job.run_id, name))
    stored = [step.name for step in mine] if first is None else None
    check_from_step(job.id, name, jobs=len(state.jobs_of(job.run_id)), stored=stored)
    return [step for step in mine if first is not None and _step_order(step) >= _step_order(first)]


def _step_order(step: Step) -> tuple[datetime, str]:
    return step.started_at, step.name


def cancel_job(state: State, job: Job, reason: str | None, now: datetime) -> Job:
    """Stop a live job and end its ledger row; `last_error` is left alone without a reason."""
    cancelled = replace(
        job,
        state="cancelled",
        claimed_by=None,
        visible_at=None,
        last_error=job.last_error if reason is None else reason,
        last_error_code=job.last_error_code if reason is None else None,
        stop_reason="cancelled",
        updated_at=now,
    )
    state.write(cancelled)
    end_backfill(state, cancelled, "cancelled", now)
    return cancelled


def requeue_job(state: State, job: Job, now: datetime) -> Job:
    """Make a finished job due now and reopen its ledger row; raises NotRequeueable, DuplicateJob."""
    if job.state in LIVE_STATES:
        raise NotRequeueable(
            f"job {job.id} is {job.state}, and only a finished job can be requeued.",
            fix="rowsweep jobs ls --state dead --json",
            meta={"job_id": str(job.id), "state": job.state},
        )
    refuse_taken_key(state, job)
    cleared = replace(job, last_error=None, last_error_code=None, stop_reason=None)
    requeued = replace(cleared, state="ready", attempt=0, run_at=now, updated_at=now)
    state.write(requeued)
    reopen_backfill(state, requeued, now)
    return requeued


def refuse_taken_key(state: State, job: Job) -> None:
    """Refuse to make a finished job live again while another one has its key; raises DuplicateJob."""
    holder = state.live.get(key_of(job))
    if holder is not None:
        raise DuplicateJob(
            f"the live job {holder} of {job.name!r} has the key {job.idempotency_key!r} already.",
            fix=f"rowsweep jobs show {holder}",
            meta={"job_id": str(job.id), "holder": str(holder)},
        )
