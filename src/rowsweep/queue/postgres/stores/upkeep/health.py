"""The queue's health on Postgres, read from its tables and from the server's statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.stores.health import Kept, ServerFacts, TableFacts
from rowsweep.queue.stores.schedules import Leadership
from rowsweep.queue.stores.workers import MOST_COUNTED
from rowsweep.telemetry.instruments import Depth

if TYPE_CHECKING:
    from rowsweep.queue.postgres.statements.session import Session

HOT_TABLES: Final = ("x_jobs", "x_job_steps", "x_backfills", "x_outbox", "x_job_leases", "x_job_workers")
_SQL = load(__name__)


class PostgresHealth:
    """Read how the queue and its server are."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def server(self) -> ServerFacts:
        """Answer what is known of the server and this role's connections."""
        now, version, is_standby, used, most, role, limit, age, pid = self._session.rows(_SQL["server"], {})[0]
        return ServerFacts(
            now=now,
            version=version,
            is_standby=is_standby,
            connections=used,
            max_connections=most,
            role=role,
            role_limit=limit,
            oldest_transaction_seconds=age,
            oldest_transaction_pid=pid,
        )

    def depths(self) -> list[Depth]:
        """Count what waits in each queue, and its dead letters."""
        return [
            Depth(queue=queue, ready=ready, dead=dead, oldest_ready_seconds=oldest, is_capped=is_capped)
            for queue, ready, dead, oldest, is_capped in self._session.rows(_SQL["depths"], {"most": MOST_COUNTED})
        ]

    def leaders(self) -> list[Leadership]:
        """Answer every lease of a scheduler, expired ones too, and a session that leads by its advisory lock."""
        return [
            Leadership(name=name, holder=holder, acquired_at=acquired_at, expires_at=expires_at)
            for name, holder, acquired_at, expires_at in self._session.rows(_SQL["leaders"], {})
        ]

    def tables(self) -> list[TableFacts]:
        """Answer the tables that change most."""
        return [
            TableFacts(table=table, live_rows=live, dead_rows=dead, vacuumed_at=vacuumed_at)
            for table, live, dead, vacuumed_at in self._session.rows(_SQL["tables"], {"tables": list(HOT_TABLES)})
        ]

    def kept(self) -> Kept:
        """Answer how old the oldest finished jobs are."""
        done, dead = self._session.rows(_SQL["kept"], {})[0]
        return Kept(done_seconds=done, dead_seconds=dead)
