"""Reading jobs on Postgres."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rowsweep.options import count
from rowsweep.queue.postgres.sql import load
from rowsweep.queue.postgres.stores import records
from rowsweep.queue.records import PAGE_DEFAULT

if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence
    from uuid import UUID

    from rowsweep.queue.postgres.session import Session
    from rowsweep.queue.records import Job, JobFilter

_SQL = load(__name__)


class PostgresInspection:
    """Read jobs from `x_jobs`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, job_id: UUID) -> Job | None:
        """Answer one job."""
        rows = self._session.rows(_SQL["get"], {"job_id": job_id})
        return records.job(rows[0]) if rows else None

    def list(self, where: JobFilter, *, limit: int = PAGE_DEFAULT) -> list[Job]:
        """Answer jobs newest first by `(created_at, id)`."""
        if count(limit, option="limit", minimum=0) == 0:
            return []
        rows = self._session.rows(_SQL["list"], {**asdict(where), "limit": limit})
        return [records.job(row) for row in rows]

    def dead_letters(self, *, limit: int = PAGE_DEFAULT) -> builtins.list[Job]:
        """Answer dead jobs newest first by `updated_at`."""
        if count(limit, option="limit", minimum=0) == 0:
            return []
        return [records.job(row) for row in self._session.rows(_SQL["dead_letters"], {"limit": limit})]

    def undeclared(self, names: Sequence[str]) -> builtins.list[tuple[str, str, int]]:
        """Answer `(queue, name, rows)` of waiting rows that nobody declares, by queue and name."""
        rows = self._session.rows(_SQL["undeclared"], {"names": list(names)})
        return [(queue, name, amount) for queue, name, amount in rows]
