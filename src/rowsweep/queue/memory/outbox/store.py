"""Staged jobs in memory; a published one is gone, since there is nobody to audit it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from rowsweep.errors import InvariantBroken
from rowsweep.options import row_count
from rowsweep.queue.memory import jsonb
from rowsweep.queue.memory.state import locked
from rowsweep.queue.records import DEFAULT_QUEUE
from rowsweep.queue.stores.outbox import Backlog, StagedJob, StagedPass, staged
from rowsweep.queue.wake import OUTBOX

if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from rowsweep.jobs.request import EnqueueResult, NewJob
    from rowsweep.queue.memory.state import State
    from rowsweep.queue.stores.outbox import StagedStatus


class MemoryOutbox:
    """Keep staged jobs in a dict by id."""

    def __init__(self, state: State) -> None:
        self._state = state

    @locked
    def stage(self, jobs: Sequence[NewJob]) -> list[EnqueueResult]:
        """Insert the jobs, all or none."""
        now = self._state.now()
        rows = {job.id: StagedJob(job=_kept(job, now), created_at=now) for job in jobs}
        taken = rows.keys() & self._state.outbox.keys()
        if taken or len(rows) < len(jobs):
            raise InvariantBroken("a job was staged twice.", fix="give every NewJob an id of its own")
        self._state.outbox.update(rows)
        if rows:
            self._state.say(OUTBOX)
        return [staged(job) for job in jobs]

    @locked
    def claim(self, relay: str, *, limit: int, lease_seconds: float, proof: str | None = None) -> StagedPass:
        """Lease due rows, the smallest ids first."""
        if proof is not None:
            self._state.say(proof)
        now = self._state.now()
        pending = [row for _, row in sorted(self._state.outbox.items()) if row.status == "pending"]
        due = [row for row in pending if row.lease_until is None or row.lease_until <= now][:limit]
        taken = [replace(row, claimed_by=relay, lease_until=now + timedelta(seconds=lease_seconds)) for row in due]
        for row in taken:
            self._state.outbox[row.job.id] = row
        later = [row.lease_until for row in pending if row.lease_until is not None and row.lease_until > now]
        next_at = min(later, default=None) if len(due) < limit else None
        next_in = None if next_at is None else (next_at - now).total_seconds()
        return StagedPass(rows=[_answer(row) for row in taken], next_at=next_at, next_in_seconds=next_in)

    @locked
    def publish(self, ids: Sequence[UUID], relay: str) -> list[UUID]:
        """Drop rows of the relay's."""
        mine = self._mine(ids, relay)
        for row in mine:
            del self._state.outbox[row]
        return mine

    @locked
    def refuse(self, row: UUID, relay: str, *, error: str, delay_seconds: float, attempts: int) -> StagedJob | None:
        """Note a publication that failed."""
        if not self._mine([row], relay):
            return None
        former, now = self._state.outbox[row], self._state.now()
        tried = former.attempts + 1
        is_dead = tried >= attempts
        refused = replace(
            former,
            attempts=tried,
            last_error=error,
            claimed_by=None,
            lease_until=None if is_dead else now + timedelta(seconds=delay_seconds),
            dead_at=now if is_dead else None,
        )
        self._state.outbox[row] = refused
        return _answer(refused)

    @locked
    def release(self, ids: Sequence[UUID], relay: str) -> list[UUID]:
        """Give back rows of the relay's, due at once."""
        mine = self._mine(ids, relay)
        self._free(mine)
        return mine

    @locked
    def list(self, *, status: StagedStatus | None = None, limit: int = 100) -> list[StagedJob]:
        """Answer rows, newest first."""
        most = row_count(limit)
        rows = [row for _, row in sorted(self._state.outbox.items(), reverse=True) if status in (None, row.status)]
        return [_answer(row) for row in rows[:most]]

    @locked
    def retry(self, ids: Sequence[UUID] | None = None) -> builtins.list[UUID]:
        """Make dead rows due at once, of the ids also those that wait after a failure."""
        moved = [
            key
            for key, row in sorted(self._state.outbox.items())
            if (row.dead_at is not None if ids is None else key in ids and row.claimed_by is None)
        ]
        for key in moved:
            self._state.outbox[key] = replace(self._state.outbox[key], attempts=0, dead_at=None)
        self._free(moved)
        if moved:
            self._state.say(OUTBOX)
        return moved

    @locked
    def backlog(self) -> Backlog:
        """Count what waits."""
        pending = [row for row in self._state.outbox.values() if row.status == "pending"]
        oldest = min((row.created_at for row in pending), default=None)
        waited = None if oldest is None else (self._state.now() - oldest).total_seconds()
        dead = sum(row.status == "dead" for row in self._state.outbox.values())
        return Backlog(pending=len(pending), oldest_pending_seconds=waited, dead=dead)

    @locked
    def retained(self) -> builtins.list[StagedJob]:
        """Answer every row there is, by id: what is not published yet."""
        return [_answer(row) for _, row in sorted(self._state.outbox.items())]

    def _mine(self, ids: Sequence[UUID], relay: str) -> builtins.list[UUID]:
        return [key for key in ids if key in self._state.outbox and self._state.outbox[key].claimed_by == relay]

    def _free(self, ids: Sequence[UUID]) -> None:
        for key in ids:
            self._state.outbox[key] = replace(self._state.outbox[key], claimed_by=None, lease_until=None)


def _kept(job: NewJob, now: datetime) -> NewJob:
    """Answer a job as its row keeps it: a delay counts from the staging, and no value is shared with the caller."""
    delayed = None if job.delay_seconds is None else now + timedelta(seconds=job.delay_seconds)
    return replace(
        job,
        input=jsonb.bind(job.input),
        queue=job.queue or DEFAULT_QUEUE,
        run_at=job.run_at or delayed,
        delay_seconds=None,
    )


def _answer(row: StagedJob) -> StagedJob:
    return replace(row, job=replace(row.job, input=jsonb.read(row.job.input)))
