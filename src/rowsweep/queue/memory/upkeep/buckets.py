"""The buckets of the memory driver's counters: how a run's end is counted, and which bucket an instant lies in."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rowsweep.queue.stores.counters import COUNTER_TIERS, CounterBucket, CounterTier

if TYPE_CHECKING:
    from rowsweep.queue.memory.state import CounterKey, State


def count_end(state: State, name: str, counter: str, now: datetime, *, duration_ms: float = 0) -> None:
    """Count one run's end in its minute's bucket."""
    key: CounterKey = ("minute", truncated(now, "minute"), name)
    row = state.counters.get(key) or CounterBucket(tier="minute", bucket_at=key[1], name=name)
    changes: dict[str, Any] = {counter: getattr(row, counter) + 1}
    if counter == "completed":
        ran = round(duration_ms)
        changes |= {"run_ms": row.run_ms + ran, "max_run_ms": max(row.max_run_ms, ran)}
    state.counters[key] = replace(row, **changes)


def is_folded(state: State, row: CounterBucket) -> bool:
    """Say whether a coarser bucket holds this one."""
    at = COUNTER_TIERS.index(row.tier) + 1
    if at == len(COUNTER_TIERS):
        return False
    coarser = COUNTER_TIERS[at]
    return (coarser, truncated(row.bucket_at, coarser), row.name) in state.counters


def truncated(instant: datetime, tier: CounterTier) -> datetime:
    """Answer the beginning of the bucket that an instant lies in."""
    whole = instant.astimezone(UTC).replace(second=0, microsecond=0)
    if tier != "minute":
        whole = whole.replace(minute=0)
    return whole.replace(hour=0) if tier == "day" else whole
