"""Watermarks of tasks on Postgres, and the one statement that fires an occurrence."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.postgres.stores import records
from rowsweep.queue.postgres.stores.enqueue import enqueue_values, find_live

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from rowsweep.jobs.request import EnqueueResult
    from rowsweep.queue.postgres.statements.session import Session
    from rowsweep.queue.stores.schedules import ScheduledFire

_SQL = load(__name__)


class PostgresSchedules:
    """Keep a watermark a task in `x_scheduler_state`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def last_fired_at(self, task: str) -> datetime | None:
        """Answer a task's watermark."""
        rows = self._session.rows(_SQL["last_fired_at"], {"task": task})
        return rows[0][0].astimezone(UTC) if rows else None

    def watermarks(self) -> Mapping[str, datetime]:
        """Answer every task's watermark."""
        return {task: at.astimezone(UTC) for task, at in self._session.rows(_SQL["watermarks"], {})}

    def mark_fired(self, task: str, at: datetime) -> datetime:
        """Arm a task that is seen for the first time; answer the watermark that stands."""
        if self._session.rows(_SQL["mark_fired"], {"task": task, "at": at}):
            return at
        return self.last_fired_at(task) or at

    def fire(self, fire: ScheduledFire) -> list[EnqueueResult | None] | None:
        """Move the watermark and insert the jobs in one statement, or do nothing where it is another."""
        values = {
            **enqueue_values(fire.jobs),
            "task": fire.task,
            "occurrence": fire.occurrence_at,
            "watermark": fire.watermark_at,
            "former": fire.former_at,
        }
        rows = self._session.rows(_SQL["fire"], values)
        if not rows:
            return None
        states = {job_id: state for job_id, state in rows if job_id is not None}
        live = find_live(self._session, fire.jobs, [at for at, job in enumerate(fire.jobs) if job.id not in states])
        return [
            records.enqueued(job.id, job.run_id, states[job.id], deduplicated=False)
            if job.id in states
            else live.get(at)
            for at, job in enumerate(fire.jobs)
        ]
