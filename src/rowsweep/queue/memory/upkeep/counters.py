"""Counters in memory: read, and folded into coarser tiers."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from rowsweep.queue.memory.schedules import MemoryLeader
from rowsweep.queue.memory.state import locked
from rowsweep.queue.memory.upkeep.buckets import truncated
from rowsweep.queue.stores.counters import (
    COUNTER_TIERS,
    COUNTERS_DEFAULT,
    HOURS_AT_ONCE,
    CounterBucket,
    CounterTier,
    RollUp,
    check_read,
)

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterable

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.stores.schedules import Lease

_CLOSED_FOR: Final = timedelta(minutes=1)
_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)
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
        finer = COUNTER_TIERS[: COUNTER_TIERS.index(tier)]
        rows = [row for row in self._state.counters.values() if row.tier == tier]
        rows += [row for of in finer for row in self._unfolded(of)]
        found = _added_up(rows, tier)
        first = None if since is None else truncated(since, tier)
        wanted = [row for row in found if name in (None, row.name) and (first is None or row.bucket_at >= first)]
        wanted.sort(key=lambda row: row.name)
        return sorted(wanted, key=lambda row: row.bucket_at, reverse=True)[:limit]

    @locked
    def rollup_counters(self, *, lease: Lease | None = None) -> RollUp | None:
        """Fold the oldest hours that have been closed for a minute; None where the lease is another's."""
        state = self._state
        if lease is not None and not self._is_renewed(lease):
            return None
        now = state.now()
        before, closed_at = len(state.counters), truncated(now - _CLOSED_FOR, "hour")
        minutes = [row for row in self._unfolded("minute") if row.bucket_at < closed_at]
        hours = sorted({truncated(row.bucket_at, "hour") for row in minutes})
        left_over = hours[HOURS_AT_ONCE] if len(hours) > HOURS_AT_ONCE else None
        until = left_over or closed_at
        self._keep(_added_up([row for row in minutes if row.bucket_at < until], "hour"))
        days = [row for row in self._unfolded("hour") if row.bucket_at < truncated(until, "day")]
        self._keep(_added_up(days, "day"))
        due_at = now if left_over is not None else closed_at + _HOUR + _CLOSED_FOR
        return RollUp(buckets=len(state.counters) - before, next_in_seconds=(due_at - now).total_seconds())

    def _keep(self, rows: Iterable[CounterBucket]) -> None:
        for row in rows:
            self._state.counters.setdefault((row.tier, row.bucket_at, row.name), row)

    def _unfolded(self, tier: CounterTier) -> builtins.list[CounterBucket]:
        """Answer a tier's rows behind the last one of the coarser tier: buckets are folded in their order."""
        coarser = COUNTER_TIERS[COUNTER_TIERS.index(tier) + 1]
        rows = list(self._state.counters.values())
        last = max((row.bucket_at for row in rows if row.tier == coarser), default=None)
        behind = None if last is None else last + (_HOUR if coarser == "hour" else _DAY)
        return [row for row in rows if row.tier == tier and (behind is None or row.bucket_at >= behind)]

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
