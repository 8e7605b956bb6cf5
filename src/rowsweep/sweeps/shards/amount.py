"""How many shards a run gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rowsweep.queue.stores.shards import MOST_SHARDS, shard_number
from rowsweep.sweeps.passes.position import SETUP_STEP

if TYPE_CHECKING:
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.handle import TableSweep
    from rowsweep.sweeps.setup import Setup

ROWS_A_SHARD: Final = 250_000


@dataclass(frozen=True, slots=True)
class Amount:
    """How many shards are wanted, and why so many."""

    shards: int
    reason: str


def how_many(sweep: TableSweep[Any], ctx: RunCtx, setup: Setup) -> Amount:
    """Answer the declared number; for "auto" one a live worker, at most one for each 250,000 rows or larger batch.

    A worker counts that serves the run's queue and declares the sweep; the rows are the estimate of the setup.
    """
    declared = sweep.spec.shards
    if declared != "auto":
        return Amount(declared, "declared")
    workers = ctx.driver.stores().workers
    live = [] if workers is None else workers.live()
    serving = sum(ctx.record.queue in info.queues and sweep.name in info.names for info, _ in live)
    rows = setup.estimate or 0
    shards = max(min(serving, rows // max(ROWS_A_SHARD, sweep.spec.batch_rows), MOST_SHARDS), 1)
    return Amount(shards, f"auto: {serving} live workers serve it, and it has about {rows:,} rows")


def is_sharded(sweep: TableSweep[Any], ctx: RunCtx) -> bool:
    """Say whether a job is, or may become, one of several: by what the run's first found, whatever is declared now."""
    if shard_number(ctx.record.concurrency_key) > 1:
        return True
    stored = ctx.step.stored(SETUP_STEP, "run")
    return sweep.has_shards if stored is None else stored.output.get("shards", 1) > 1
