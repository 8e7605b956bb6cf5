"""Counters on Postgres: read, and folded into coarser tiers; settles and claims count in their own statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.postgres.stores import records
from rowsweep.queue.stores.counters import (
    COUNTERS_DEFAULT,
    HOURS_AT_ONCE,
    CounterBucket,
    CounterTier,
    RollUp,
    check_read,
)

if TYPE_CHECKING:
    import builtins
    from datetime import datetime

    from rowsweep.queue.postgres.statements.session import Session
    from rowsweep.queue.stores.schedules import Lease

_SQL = load(__name__)


class PostgresCounters:
    """Keep counters in `x_job_counters`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(
        self,
        *,
        tier: CounterTier = "minute",
        name: str | None = None,
        since: datetime | None = None,
        limit: int = COUNTERS_DEFAULT,
    ) -> builtins.list[CounterBucket]:
        """Answer buckets, the newest first and by name, their shards added up."""
        check_read(tier, since, limit)
        if limit == 0:
            return []
        rows = self._session.rows(_SQL["list"], {"tier": tier, "name": name, "since": since, "limit": limit})
        return [records.counter_bucket(tier, row) for row in rows]

    def rollup_counters(self, *, lease: Lease | None = None) -> RollUp | None:
        """Fold the oldest hours that have been closed for a minute; None where the lease is another's."""
        values = {
            "leader": None if lease is None else lease.name,
            "holder": None if lease is None else lease.holder,
            "seconds": None if lease is None else float(lease.seconds),
            "hours": HOURS_AT_ONCE,
        }
        is_allowed, buckets, seconds = self._session.rows(_SQL["rollup_counters"], values)[0]
        return RollUp(buckets=buckets, next_in_seconds=seconds) if is_allowed else None
