"""Retention of the queue's own tables on Postgres."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.postgres.stores import records
from rowsweep.queue.stores.retention import Removable, Removed

if TYPE_CHECKING:
    from rowsweep.queue.postgres.statements.session import Session
    from rowsweep.queue.stores.retention import RetentionKind

_SQL = load(__name__)
_FROM_THE_FIRST: Final = datetime(1, 1, 2, tzinfo=UTC)
_COARSER: Final = {"minute": "hour", "hour": "day", "day": None}


class PostgresRetention:
    """Remove rows in one statement a call, along an index by which they age."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def now(self) -> datetime:
        """Answer the database's clock."""
        return records.instant(self._session.rows(_SQL["now"], {})[0][0])

    def remove(
        self, kind: RetentionKind, *, before: datetime, after: datetime | None = None, limit: int = 1_000
    ) -> Removed:
        """Remove up to so many rows of a kind, the oldest first."""
        part, values = _part(kind)
        if part not in ("jobs", "counters"):
            values = {}
        asked = {**values, "before": before, "after": after or _FROM_THE_FIRST, "limit": limit}
        rows, last_at = self._session.rows(_SQL[part], asked)[0][:2]
        return Removed(rows=rows, last_at=None if last_at is None else records.instant(last_at))

    def removable(self, kind: RetentionKind, *, before: datetime) -> Removable:
        """Count what could go."""
        part, values = _part(kind)
        asked = {"state": None, "tier": None, "coarser": None, **values, "part": part, "before": before}
        rows, oldest, newest = self._session.rows(_SQL["removable"], asked)[0]
        return Removable(
            rows=rows,
            oldest_at=None if oldest is None else records.instant(oldest),
            newest_at=None if newest is None else records.instant(newest),
        )


def _part(kind: RetentionKind) -> tuple[str, dict[str, Any]]:
    """Answer the statement of a kind, and what it is told besides the instants."""
    first, _, part = kind.rpartition("-")
    if part == "jobs":
        return part, {"state": first}
    if part == "counters":
        return part, {"tier": first, "coarser": _COARSER[first]}
    return part, {}
