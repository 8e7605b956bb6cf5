"""Reading jobs in memory."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rowsweep.options import count
from rowsweep.queue.memory.state import job_answer, locked
from rowsweep.queue.records import PAGE_DEFAULT, WAITING_STATES

if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence
    from uuid import UUID

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.records import Job, JobFilter


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
    def list(self, where: JobFilter, *, limit: int = PAGE_DEFAULT) -> list[Job]:
        """Answer jobs newest first by `(created_at, id)`."""
        count(limit, option="limit", minimum=0)
        chosen = [job for job in self._state.jobs.values() if _fits(job, where)]
        chosen.sort(key=lambda job: (job.created_at, job.id), reverse=True)
        return [job_answer(job) for job in chosen[:limit]]

    @locked
    def dead_letters(self, *, limit: int = PAGE_DEFAULT) -> builtins.list[Job]:
        """Answer dead jobs newest first by `updated_at`."""
        count(limit, option="limit", minimum=0)
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


def _fits(job: Job, where: JobFilter) -> bool:
    asked = (
        (where.queue, job.queue),
        (where.name, job.name),
        (where.state, job.state),
        (where.tenant_id, job.tenant_id),
        (where.run_id, job.run_id),
    )
    return all(wanted is None or wanted == has for wanted, has in asked)
