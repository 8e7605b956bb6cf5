"""Reading jobs in memory."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rowsweep.options import row_count
from rowsweep.queue.memory.state import job_answer, locked
from rowsweep.queue.records import PAGE_DEFAULT, WAITING_STATES
from rowsweep.queue.selection import id_bounds

if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.records import Job, JobFilter
    from rowsweep.queue.selection import JobPosition


class MemoryInspection:
    """Read jobs."""

    def __init__(self, state: State) -> None:
        self._state = state

    @locked
    def get(self, job_id: UUID) -> Job | None:
        """Answer one job."""
        job = self._state.jobs.get(job_id)
        return None if job is None else job_answer(job)

    @locked
    def list(
        self,
        where: JobFilter,
        *,
        limit: int = PAGE_DEFAULT,
        after: JobPosition | None = None,
        before: JobPosition | None = None,
    ) -> list[Job]:
        """Answer jobs newest first by `(created_at, id)`, behind or in front of a place."""
        row_count(limit)
        ids = None if where.id_prefix is None else id_bounds(where.id_prefix)
        chosen = [job for job in self._state.jobs.values() if _fits(job, where, ids)]
        chosen.sort(key=_place, reverse=True)
        if before is not None:
            in_front = [job for job in chosen if _place(job) > before]
            return [job_answer(job) for job in in_front[max(len(in_front) - limit, 0) :]]
        behind = [job for job in chosen if after is None or _place(job) < after]
        return [job_answer(job) for job in behind[:limit]]

    @locked
    def dead_letters(self, *, limit: int = PAGE_DEFAULT) -> builtins.list[Job]:
        """Answer dead jobs newest first by `updated_at`."""
        row_count(limit)
        dead = [job for job in self._state.jobs.values() if job.state == "dead"]
        dead.sort(key=lambda job: (job.updated_at, job.id), reverse=True)
        return [job_answer(job) for job in dead[:limit]]

    @locked
    def undeclared(self, names: Sequence[str]) -> builtins.list[tuple[str, str, int]]:
        """Answer `(queue, name, rows)` of waiting rows that nobody declares, by queue and name."""
        now = self._state.now()
        workers = (row for row in self._state.workers.values() if row.expires_at > now)
        declared = {name for row in workers for name in row.info.names} | set(names)
        waiting = (job for job in self._state.live_jobs() if job.state in WAITING_STATES)
        rows = Counter((job.queue, job.name) for job in waiting if job.name not in declared)
        return [(queue, name, rows[queue, name]) for queue, name in sorted(rows)]


def _place(job: Job) -> tuple[datetime, UUID]:
    return job.created_at, job.id


def _fits(job: Job, where: JobFilter, ids: tuple[UUID, UUID] | None) -> bool:
    if ids is not None and not ids[0] <= job.id <= ids[1]:
        return False
    if where.created_from is not None and job.created_at < where.created_from:
        return False
    if where.created_to is not None and job.created_at >= where.created_to:
        return False
    asked = (
        (where.queue, job.queue),
        (where.name, job.name),
        (where.state, job.state),
        (where.tenant_id, job.tenant_id),
        (where.run_id, job.run_id),
    )
    return all(wanted is None or wanted == has for wanted, has in asked)
