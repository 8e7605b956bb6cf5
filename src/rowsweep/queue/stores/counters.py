"""How runs ended, counted by job name: one-minute buckets, and the coarser tiers folded from them."""

from __future__ import annotations

import builtins
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, get_args

from rowsweep.options import one_of, row_count
from rowsweep.queue.stores.events import check_instant

if TYPE_CHECKING:
    from datetime import datetime

    from rowsweep.queue.stores.schedules import Lease

CounterTier = Literal["minute", "hour", "day"]
COUNTER_TIERS: Final[tuple[CounterTier, ...]] = get_args(CounterTier)
COUNTERS_DEFAULT: Final = 1_000
HOURS_AT_ONCE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterBucket:
    """How the runs of one job ended within one bucket, which begins at `bucket_at` and is aligned in UTC.

    `run_ms` and `max_run_ms` are over the completed runs.
    """

    tier: CounterTier
    bucket_at: datetime
    name: str
    completed: int = 0
    retried: int = 0
    deferred: int = 0
    dead: int = 0
    dropped: int = 0
    refused: int = 0
    run_ms: int = 0
    max_run_ms: int = 0

    def as_json(self) -> dict[str, Any]:
        """Answer the bucket as plain JSON, its instant as ISO 8601 text."""
        return {**asdict(self), "bucket_at": self.bucket_at.isoformat()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RollUp:
    """What one fold added: how many buckets, and in how many seconds the next can be due, 0 where more is left."""

    buckets: int
    next_in_seconds: float


def check_read(tier: CounterTier, since: datetime | None, limit: int) -> None:
    """Refuse a tier there is not, an instant without a zone, and a limit below zero."""
    one_of(tier, COUNTER_TIERS, option="tier")
    row_count(limit)
    if since is not None:
        check_instant(since, option="since")


class CounterStore(Protocol):
    """Read and fold what settles and claims counted."""

    def list(
        self,
        *,
        tier: CounterTier = "minute",
        name: str | None = None,
        since: datetime | None = None,
        limit: int = COUNTERS_DEFAULT,
    ) -> builtins.list[CounterBucket]:
        """Answer buckets, the newest first and by name; `since` takes in the bucket that it lies in.

        What is not folded yet is added up in the answer, so that the hour and the day under way show too.
        """

    def rollup_counters(self, *, lease: Lease | None = None) -> RollUp | None:
        """Fold what has been closed for a minute into the coarser tiers, in one statement; twice is once.

        The oldest hours first, three at once, and each day with its last hour: after an outage it takes several calls.
        With `lease` the same statement renews it first; None, and nothing folded, where it is no longer the holder's.
        """
