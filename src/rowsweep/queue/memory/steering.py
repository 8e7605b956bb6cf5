"""Moving jobs by hand in memory: cancel, requeue, remove, promote, and these over sets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rowsweep.errors import DuplicateJob, JobNotFound, NotRemovable, NotRequeueable
from rowsweep.options import count
from rowsweep.queue.memory.ledger.moves import end_backfill, reopen_backfill
from rowsweep.queue.memory.state import job_answer, key_of, locked
from rowsweep.queue.records import FINISHED_STATES, LIVE_STATES
from rowsweep.queue.refusals import (
    check_from_step,
    check_promotable,
    check_removable,
    check_requeueable,
    not_promotable,
)
from rowsweep.queue.selection import MAX_BULK_ROWS, PROMOTABLE_STATES, BulkResult
from rowsweep.queue.stores.shards import shard_number, shard_suffix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from uuid import UUID

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.records import Job
    from rowsweep.queue.selection import JobSet
    from rowsweep.queue.stores.steps import Step


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
        remove_job(state, job)
        return True

    @locked
    def promote(self, job_id: UUID) -> Job:
        """Make a job due now that waits for its time."""
        state, now = self._state, self._state.now()
        job = state.jobs.get(job_id)
        if job is None or not _waits(job, now):
            raise not_promotable(job_id, None if job is None else job.state, waits=False)
        return job_answer(promote_job(state, job, now))

    @locked
    def requeue_many(self, where: JobSet, *, limit: int = MAX_BULK_ROWS) -> BulkResult:
        """Requeue finished rows whose key is free, the longest finished first."""
        check_requeueable(where.state)
        return self._move(self._requeueable, requeue_job, where, limit)

    @locked
    def remove_many(self, where: JobSet, *, limit: int = MAX_BULK_ROWS) -> BulkResult:
        """Delete rows that are not running, with the steps of runs that end with them."""
        check_removable(where.state)
        return self._move(self._removable, lambda state, job, _: remove_job(state, job), where, limit)

    @locked
    def promote_many(self, where: JobSet, *, limit: int = MAX_BULK_ROWS) -> BulkResult:
        """Make rows due now that wait for their time."""
        check_promotable(where.state)
        return self._move(self._promotable, promote_job, where, limit)

    def _move(
        self,
        movable: Callable[[JobSet], list[Job]],
        move: Callable[[State, Job, datetime], object],
        where: JobSet,
        limit: int,
    ) -> BulkResult:
        most, now = count(limit, option="limit", minimum=0, maximum=MAX_BULK_ROWS), self._state.now()
        chosen = movable(where)[:most]
        for job in chosen:
            move(self._state, job, now)
        return BulkResult(affected=len(chosen), remaining=len(movable(where)))

    def _requeueable(self, where: JobSet) -> list[Job]:
        finished = (job for job in self._chosen(where) if job.state in FINISHED_STATES)
        free = sorted(
            (job for job in finished if key_of(job) not in self._state.live),
            key=lambda job: (job.created_at, job.id),
            reverse=True,
        )
        return sorted({key_of(job): job for job in free}.values(), key=lambda job: (job.updated_at, job.id))

    def _removable(self, where: JobSet) -> list[Job]:
        removable = (job for job in self._chosen(where) if job.state != "running")
        return sorted(removable, key=lambda job: (job.state, job.updated_at, job.id))

    def _promotable(self, where: JobSet) -> list[Job]:
        now = self._state.now()
        waiting = (job for job in self._chosen(where) if _waits(job, now))
        return sorted(waiting, key=lambda job: (job.queue, job.name, -job.priority, job.run_at, job.id))

    def _chosen(self, where: JobSet) -> Iterator[Job]:
        for job in self._state.jobs.values():
            asked = ((where.state, job.state), (where.queue, job.queue), (where.name, job.name))
            if all(wanted in (None, has) for wanted, has in (*asked, (where.tenant_id, job.tenant_id))):
                yield job


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


def remove_job(state: State, job: Job) -> None:
    """Delete a job; with the last of a run's jobs go its steps, and its ledger row ends."""
    state.remove(job)
    number = shard_number(job.concurrency_key)
    if number > 1:
        state.remove_steps(job.run_id, suffix=shard_suffix(number))
    if not state.jobs_of(job.run_id):
        state.remove_steps(job.run_id)
        end_backfill(state, replace(job, last_error=None), "cancelled", state.now())


def promote_job(state: State, job: Job, now: datetime) -> Job:
    """Make a waiting job due now."""
    promoted = replace(job, state="ready", run_at=now, updated_at=now)
    state.write(promoted)
    return promoted


def _waits(job: Job, now: datetime) -> bool:
    """Say whether a job waits for its time, delayed or backing off."""
    return job.state in PROMOTABLE_STATES and job.run_at > now


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
