"""Who leads the schedulers, on Postgres: an expiring lease row."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.stores.schedules import Leadership

if TYPE_CHECKING:
    from rowsweep.queue.postgres.statements.session import Session

_SQL = load(__name__)


class PostgresLeader:
    """Keep one expiring lease a name in `x_scheduler_leader`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def acquire(self, name: str, holder: str, *, lease_seconds: float) -> bool:
        """Take the lease where it is free or expired, or renew the holder's own."""
        values = {"name": name, "holder": holder, "lease": float(lease_seconds)}
        return bool(self._session.rows(_SQL["acquire"], values))

    def release(self, name: str, holder: str) -> bool:
        """Give the holder's lease back."""
        return bool(self._session.rows(_SQL["release"], {"name": name, "holder": holder}))

    def get(self, name: str) -> Leadership | None:
        """Answer who holds the lease, None where nobody does."""
        rows = self._session.rows(_SQL["get"], {"name": name})
        if not rows:
            return None
        of, holder, acquired_at, expires_at = rows[0]
        return Leadership(
            name=of,
            holder=holder,
            acquired_at=acquired_at.astimezone(UTC),
            expires_at=expires_at.astimezone(UTC),
        )
