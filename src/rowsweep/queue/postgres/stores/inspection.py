"""Reading jobs on Postgres."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rowsweep.options import row_count
from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.postgres.stores import records
from rowsweep.queue.records import PAGE_DEFAULT
from rowsweep.queue.selection import id_bounds

if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence
    from uuid import UUID

    from rowsweep.queue.postgres.statements.session import Session
    from rowsweep.queue.records import Job, JobFilter
    from rowsweep.queue.selection import JobPosition

_SQL = load(__name__)


class PostgresInspection:
    """Read jobs from `x_jobs`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, job_id: UUID) -> Job | None:
        """Answer one job."""
        rows = self._session.rows(_SQL["get"], {"job_id": job_id})
        return records.job(rows[0]) if rows else None

    def list(
        self,
        where: JobFilter,
        *,
        limit: int = PAGE_DEFAULT,
        after: JobPosition | None = None,
        before: JobPosition | None = None,
    ) -> list[Job]:
        """Answer jobs newest first by `(created_at, id)`, behind or in front of a place."""
        values = _values(where) | {"limit": row_count(limit)}
        if limit == 0:
            return []
        at, at_id = before or after or (None, None)
        rows = self._session.rows(_SQL["list_before" if before else "list"], {**values, "at": at, "at_id": at_id})
        return [records.job(row) for row in (reversed(rows) if before else rows)]

    def dead_letters(self, *, limit: int = PAGE_DEFAULT) -> builtins.list[Job]:
        """Answer dead jobs newest first by `updated_at`."""
        if row_count(limit) == 0:
            return []
        return [records.job(row) for row in self._session.rows(_SQL["dead_letters"], {"limit": limit})]

    def undeclared(self, names: Sequence[str]) -> builtins.list[tuple[str, str, int]]:
        """Answer `(queue, name, rows)` of waiting rows that nobody declares, by queue and name."""
        rows = self._session.rows(_SQL["undeclared"], {"names": list(names)})
        return [(queue, name, amount) for queue, name, amount in rows]


def _values(where: JobFilter) -> dict[str, Any]:
    given = asdict(where)
    prefix = given.pop("id_prefix")
    id_from, id_to = (None, None) if prefix is None else id_bounds(prefix)
    return {**given, "id_from": id_from, "id_to": id_to}
