"""How many shards a run gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rowsweep.queue.shards import MOST_SHARDS

if TYPE_CHECKING:
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.declare import RowSweep
    from rowsweep.sweeps.setup import Setup

ROWS_A_SHARD: Final = 250_000


def how_many(sweep: RowSweep[Any], ctx: RunCtx, setup: Setup) -> int:
    """Answer the declared number; for "auto" one a live worker, and one for each 250,000 rows at most.

    A worker counts that serves the run's queue and declares the sweep; the rows are the estimate of the setup.
    """
    declared = sweep.spec.shards
    if declared != "auto":
        return declared
    workers = ctx.driver.stores().workers
    live = [] if workers is None else workers.live()
    serving = [info for info, _ in live if ctx.record.queue in info.queues and sweep.name in info.names]
    by_rows = (setup.estimate or 0) // ROWS_A_SHARD
    return max(min(len(serving), by_rows, MOST_SHARDS), 1)
