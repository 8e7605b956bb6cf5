"""Retention of the memory driver's rows; it keeps no outbox."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rowsweep.queue.memory.state import locked
from rowsweep.queue.memory.upkeep.buckets import is_folded
from rowsweep.queue.stores.retention import Removable, Removed

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from uuid import UUID

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.records import Job
    from rowsweep.queue.stores.retention import RetentionKind

Aged = tuple["datetime", "Callable[[], Any]"]


class MemoryRetention:
    """Remove rows by the instant at which they age."""

    def __init__(self, state: State) -> None:
        self._state = state

    @locked
    def now(self) -> datetime:
        """Answer the clock's now."""
        return self._state.now()

    @locked
    def remove(
        self,
        kind: RetentionKind,
        *,
        before: datetime,
        after: datetime | None = None,
        limit: int = 1_000,
    ) -> Removed:
        """Remove up to so many rows of a kind, the oldest first."""
        doomed = [aged for aged in self._aged(kind, before) if after is None or aged[0] >= after][:limit]
        for _, remove in doomed:
            remove()
        return Removed(rows=len(doomed), last_at=doomed[-1][0] if doomed else None)

    @locked
    def removable(self, kind: RetentionKind, *, before: datetime) -> Removable:
        """Count what could go."""
        aged = self._aged(kind, before)
        if not aged:
            return Removable(rows=0)
        return Removable(rows=len(aged), oldest_at=aged[0][0], newest_at=aged[-1][0])

    def _aged(self, kind: RetentionKind, before: datetime) -> list[Aged]:
        state = self._state
        first, _, part = kind.rpartition("-")
        found: list[Aged] = []
        if part == "jobs":
            found = [
                (job.updated_at, partial(self._remove_job, job))
                for job in sorted(state.jobs.values(), key=lambda job: job.id)
                if job.state == first and job.updated_at < before
            ]
        elif part == "events":
            found = _of(state.events, lambda kept: kept.event.expires_at, lambda at: at <= before)
        elif part == "counters":
            found = [
                (row.bucket_at, partial(state.counters.pop, key))
                for key, row in sorted(state.counters.items())
                if row.tier == first and row.bucket_at < before and (first == "day" or is_folded(state, row))
            ]
        elif part == "workers":
            found = _of(state.workers, lambda row: row.expires_at, lambda at: at <= before)
        elif part == "slots":
            idle = {key: slot for key, slot in state.slots.items() if not self._is_running(slot.job_id)}
            found = [
                (slot.expires_at, partial(state.slots.pop, key))
                for key, slot in idle.items()
                if slot.expires_at <= before
            ]
        elif part == "purges":
            found = [
                (row.finished_at, partial(state.ledger.pop, run_id))
                for run_id, row in state.ledger.items()
                if row.kind == "purge" and row.finished_at is not None and row.finished_at < before
            ]
        return sorted(found, key=lambda aged: aged[0])

    def _is_running(self, job_id: UUID) -> bool:
        job = self._state.jobs.get(job_id)
        return job is not None and job.state == "running"

    def _remove_job(self, job: Job) -> None:
        self._state.remove(job)
        if not self._state.jobs_of(job.run_id):
            self._state.remove_steps(job.run_id)


def _of(table: dict[Any, Any], instant: Callable[[Any], datetime], is_due: Callable[[datetime], bool]) -> list[Aged]:
    return [(instant(row), partial(table.pop, key)) for key, row in table.items() if is_due(instant(row))]
