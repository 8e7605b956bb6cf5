"""What the end of a sharded run asks: whether every shard has ended, and whether what they passed tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rowsweep.errors import InvariantBroken, SweepFailed
from rowsweep.queue.records import LIVE_STATES
from rowsweep.queue.stores.shards import shard_suffix
from rowsweep.sweeps.passes.position import PAGES_STEP
from rowsweep.sweeps.shards.totals import ranges_of, without_end

if TYPE_CHECKING:
    from rowsweep.queue.stores.shards import ShardJob
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.batch.connection import BatchConnection
    from rowsweep.sweeps.passes.position import Position
    from rowsweep.sweeps.shards.ranges import KeySpace


def ended_shards(
    shards: Sequence[ShardJob], ctx: RunCtx, *, amount: int, read: Callable[[Any, str], Position]
) -> list[Position] | None:
    """Answer where every shard stands at its end; None while another one than the asking goes on.

    Raises SweepFailed where one ended without having passed its ranges.
    """
    if any(shard.number > 1 and shard.state in LIVE_STATES for shard in shards):
        return None
    ended = [read(shard.checkpoint, PAGES_STEP + shard_suffix(shard.number)) for shard in shards]
    left = [shard for shard, at in zip(shards, ended, strict=True) if not at.ended]
    if left or len(shards) < amount:
        raise _unfinished(left, ctx)
    return ended


def prove_tiling(shards: Sequence[Position], keys: KeySpace, source: BatchConnection, ctx: RunCtx) -> int:
    """Ask the database whether the ranges that were passed cover every key once; answer how many they are."""
    ranges = ranges_of(shards) if keys.upper is not None else without_end(ranges_of(shards))
    with source.transaction(reads=True):
        tile = keys.tile(source.connection, ranges)
    if not tile:
        raise InvariantBroken(
            f"The {len(ranges)} ranges of {ctx.job!r} do not tile: keys were left out, or passed twice.",
            fix=f"rowsweep jobs ls --name {ctx.job}, and report the steps of these jobs",
            meta={"run_id": str(ctx.run_id), "ranges": [each.as_json() for each in ranges]},
        )
    return len(ranges)


def _unfinished(left: Sequence[ShardJob], ctx: RunCtx) -> SweepFailed:
    told = ", ".join(f"shard {shard.number} is {shard.state or 'gone'}" for shard in left) or "one was removed"
    error = SweepFailed(
        f"{ctx.job!r} cannot finish: {told}, and its keys are not all passed.",
        fix=f"run.resume() takes every unfinished shard up again (rowsweep sweeps resume {ctx.run_id})",
        meta={"run_id": str(ctx.run_id)},
    )
    error.retry = "terminal"  # type: ignore[misc]  # this one's alone, not its class's
    return error
