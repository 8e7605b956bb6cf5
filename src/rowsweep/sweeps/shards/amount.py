"""How many shards a run gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rowsweep.queue.shards import MOST_SHARDS

if TYPE_CHECKING:
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.declare import RowSweep
    from rowsweep.sweeps.setup import Setup

ROWS_A_SHARD: Final = 250_000


@dataclass(frozen=True, slots=True)
class Amount:
    """How many shards are wanted, and why so many."""

    shards: int
    reason: str


def how_many(sweep: RowSweep[Any], ctx: RunCtx, setup: Setup) -> Amount:
    """Answer the declared number; for "auto" one a live worker, and one for each 250,000 rows at most.

    A worker counts that serves the run's queue and declares the sweep; the rows are the estimate of the setup.
    """
    declared = sweep.spec.shards
    if declared != "auto":
        return Amount(declared, "declared")
    workers = ctx.driver.stores().workers
    live = [] if workers is None else workers.live()
    serving = sum(ctx.record.queue in info.queues and sweep.name in info.names for info, _ in live)
    rows = setup.estimate or 0
    shards = max(min(serving, rows // ROWS_A_SHARD, MOST_SHARDS), 1)
    return Amount(shards, f"auto: {serving} live workers serve it, and it has about {rows:,} rows")
