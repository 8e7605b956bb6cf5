"""Counters in memory: read, and folded into coarser tiers."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from rowsweep.queue.counters import COUNTER_TIERS, COUNTERS_DEFAULT, CounterBucket, CounterTier, RollUp, check_read
from rowsweep.queue.memory.schedules import MemoryLeader
from rowsweep.queue.memory.state import locked
from rowsweep.queue.memory.upkeep.buckets import is_folded, truncated

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterable

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.schedules import Lease

_CLOSED_FOR: Final = timedelta(minutes=1)
_HOUR: Final = timedelta(hours=1)
_FOLDS: Final[tuple[tuple[CounterTier, CounterTier], ...]] = (("minute", "hour"), ("hour", "day"))
_ADDED: Final = ("completed", "retried", "deferred", "dead", "dropped", "refused", "run_ms")


class MemoryCounters:
    """Keep counters in a dict."""

    def __init__(self, state: State) -> None:
        self._state = state

    @locked
    def list(
        self,
        *,
        tier: CounterTier = "minute",
        name: str | None = None,
        since: datetime | None = None,
        limit: int = COUNTERS_DEFAULT,
    ) -> builtins.list[CounterBucket]:
        """Answer buckets, the newest first and by name, with what is not folded yet."""
        check_read(tier, since, limit)
        kept = [row for row in self._state.counters.values() if row.tier == tier]
        finer = COUNTER_TIERS[: COUNTER_TIERS.index(tier)]
        open_rows = [
            row for row in self._state.counters.values() if row.tier in finer and not is_folded(self._state, row)
        ]
        found = _added_up([*kept, *open_rows], tier)
        first = None if since is None else truncated(since, tier)
        wanted = [row for row in found if name in (None, row.name) and (first is None or row.bucket_at >= first)]
        wanted.sort(key=lambda row: row.name)
        return sorted(wanted, key=lambda row: row.bucket_at, reverse=True)[:limit]

    @locked
    def rollup_counters(self, *, lease: Lease | None = None) -> RollUp | None:
        """Fold each bucket that has been closed for a minute; None where the lease is another's."""
        state = self._state
        if lease is not None and not self._is_renewed(lease):
            return None
        now = state.now()
        before, folded = len(state.counters), now - _CLOSED_FOR
        for finer, coarser in _FOLDS:
            rows = [row for row in state.counters.values() if row.tier == finer and not is_folded(state, row)]
            closed = [row for row in rows if truncated(row.bucket_at, coarser) < truncated(folded, coarser)]
            for row in _added_up(closed, coarser):
                state.counters[row.tier, row.bucket_at, row.name] = row
        next_at = truncated(folded, "hour") + _HOUR + _CLOSED_FOR
        return RollUp(buckets=len(state.counters) - before, next_in_seconds=(next_at - now).total_seconds())

    def _is_renewed(self, lease: Lease) -> bool:
        leaders = MemoryLeader(self._state)
        held = leaders.get(lease.name)
        if held is None or held.holder != lease.holder:
            return False
        return leaders.acquire(lease.name, lease.holder, lease_seconds=lease.seconds)


def _added_up(rows: Iterable[CounterBucket], tier: CounterTier) -> builtins.list[CounterBucket]:
    sums: dict[tuple[datetime, str], CounterBucket] = {}
    for row in rows:
        key = (truncated(row.bucket_at, tier), row.name)
        former = sums.get(key) or CounterBucket(tier=tier, bucket_at=key[0], name=row.name)
        added: dict[str, Any] = {field: getattr(former, field) + getattr(row, field) for field in _ADDED}
        sums[key] = replace(former, **added, max_run_ms=max(former.max_run_ms, row.max_run_ms))
    return list(sums.values())
