"""Staged jobs on Postgres."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowsweep.jobs.request import NewJob
from rowsweep.options import row_count
from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.postgres.stores.enqueue import ENQUEUE_ROWS, enqueue_values
from rowsweep.queue.postgres.stores.records import instant, next_instant
from rowsweep.queue.stores.outbox import Backlog, StagedJob, StagedPass, staged

if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence
    from uuid import UUID

    from rowsweep.jobs.request import EnqueueResult
    from rowsweep.queue.postgres.statements.session import Session
    from rowsweep.queue.stores.outbox import StagedStatus

_SQL = load(__name__)


class PostgresOutbox:
    """Keep staged jobs in `x_outbox`; a published row stays, for the record, until the purge takes it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def stage(self, jobs: Sequence[NewJob]) -> list[EnqueueResult]:
        """Insert the jobs, 1,000 in a statement, all or none."""
        with self._session.unit() as session:
            for start in range(0, len(jobs), ENQUEUE_ROWS):
                session.rows(_SQL["stage"], enqueue_values(jobs[start : start + ENQUEUE_ROWS]))
        return [staged(job) for job in jobs]

    def claim(self, relay: str, *, limit: int, lease_seconds: float, proof: str | None = None) -> StagedPass:
        """Lease due rows in one statement."""
        values = {"relay": relay, "limit": limit, "lease": float(lease_seconds), "proof": proof}
        rows = self._session.rows(_SQL["claim"], values)
        taken = [_staged(row) for row in rows if row[0] is not None]
        next_at, next_in = rows[0][-2:]
        return StagedPass(rows=taken, next_at=next_instant(next_at), next_in_seconds=next_in)

    def publish(self, ids: Sequence[UUID], relay: str) -> list[UUID]:
        """Mark rows of the relay's as published."""
        return [row[0] for row in self._session.rows(_SQL["publish"], {"id": list(ids), "relay": relay})]

    def refuse(self, row: UUID, relay: str, *, error: str, delay_seconds: float, attempts: int) -> StagedJob | None:
        """Note a publication that failed."""
        values = {"id": row, "relay": relay, "error": error, "delay": float(delay_seconds), "attempts": attempts}
        found = self._session.rows(_SQL["refuse"], values)
        return _staged(found[0]) if found else None

    def release(self, ids: Sequence[UUID], relay: str) -> list[UUID]:
        """Give back rows of the relay's, due at once."""
        return [row[0] for row in self._session.rows(_SQL["release"], {"id": list(ids), "relay": relay})]

    def list(self, *, status: StagedStatus | None = None, limit: int = 100) -> list[StagedJob]:
        """Answer rows, newest first."""
        most = row_count(limit)
        return [_staged(row) for row in self._session.rows(_SQL["list"], {"status": status, "limit": most})]

    def retry(self, ids: Sequence[UUID] | None = None) -> builtins.list[UUID]:
        """Make dead rows due at once, of the ids also those that wait after a failure."""
        return [row[0] for row in self._session.rows(_SQL["retry"], {"id": None if ids is None else list(ids)})]

    def backlog(self) -> Backlog:
        """Count what waits."""
        pending, oldest, dead = self._session.rows(_SQL["backlog"], {})[0]
        return Backlog(pending=pending, oldest_pending_seconds=oldest, dead=dead)


def _staged(row: Sequence[Any]) -> StagedJob:
    """Answer a staged job from its columns in the table's order."""
    return StagedJob(
        job=NewJob(
            id=row[0],
            name=row[1],
            queue=row[2],
            priority=row[3],
            input=row[4],
            idempotency_key=row[5],
            tenant_id=row[6],
            concurrency_key=row[7],
            run_id=row[8],
            max_attempts=row[9],
            run_at=next_instant(row[10]),
            traceparent=row[11],
            enqueued_by=row[12],
        ),
        created_at=instant(row[13]),
        claimed_by=row[14],
        lease_until=next_instant(row[15]),
        attempts=row[16],
        last_error=row[17],
        published_at=next_instant(row[18]),
        dead_at=next_instant(row[19]),
    )
