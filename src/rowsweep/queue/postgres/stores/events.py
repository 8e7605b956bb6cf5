"""Events on Postgres, stamped by its clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rowsweep.jobs.values.json_form import json_text
from rowsweep.options import row_count
from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.postgres.stores import records
from rowsweep.queue.stores.events import Published

if TYPE_CHECKING:
    import builtins
    from datetime import datetime

    from rowsweep.queue.postgres.statements.session import Session
    from rowsweep.queue.stores.events import Event, NewEvent

PURGE_ROWS: Final = 10_000
_SQL = load(__name__)


class PostgresEvents:
    """Keep events in `x_job_events`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def publish(self, event: NewEvent) -> Published:
        """Store the event and make every run parked on its name and key due, in one statement."""
        values = {
            "id": event.id,
            "name": event.name,
            "key": event.key,
            "payload": json_text(event.payload),
            "ttl": float(event.ttl_seconds),
        }
        row = self._session.rows(_SQL["publish"], values)[0]
        return Published(event=records.event(row), due_queues=row[6])

    def find(self, name: str, *, key: str | None = None, since: datetime) -> Event | None:
        """Answer the earliest live event of this name and key since an instant."""
        rows = self._session.rows(_SQL["find"], {"name": name, "key": key, "since": since})
        return records.event(rows[0]) if rows else None

    def list(self, *, name: str | None = None, key: str | None = None, limit: int = 1_000) -> builtins.list[Event]:
        """Answer live events, newest first."""
        if row_count(limit) == 0:
            return []
        rows = self._session.rows(_SQL["list"], {"name": name, "key": key, "limit": limit})
        return [records.event(row) for row in rows]

    def purge_expired(self, at: datetime | None = None) -> int:
        """Delete what had expired at an instant, 10,000 rows a statement."""
        removed = 0
        while True:
            gone: int = self._session.rows(_SQL["purge_expired"], {"at": at, "limit": PURGE_ROWS})[0][0]
            removed += gone
            if gone < PURGE_ROWS:
                return removed

    def now(self) -> datetime:
        """Answer the database's clock."""
        return records.instant(self._session.rows(_SQL["now"], {})[0][0])
