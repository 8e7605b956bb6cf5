"""Open the shards of a run: setup, checkpoints, figures and the other jobs, all in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rowsweep.jobs import ambient
from rowsweep.queue.records import LIVE_STATES
from rowsweep.queue.stores.shards import ShardFigures, shard_suffix
from rowsweep.queue.stores.steps import StepPut
from rowsweep.sweeps.passes.position import PAGES_STEP, SETUP_STEP

if TYPE_CHECKING:
    from rowsweep.jobs.request import NewJob
    from rowsweep.jobs.values.json_form import Json
    from rowsweep.queue.contract import Stores
    from rowsweep.queue.stores.ledger import LedgerStore, NewBackfill
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.batch.connection import BatchConnection
    from rowsweep.sweeps.handle import Sweep
    from rowsweep.sweeps.passes.position import Position

BUSY_SECONDS: Final = 10.0


class OthersLive(Exception):
    """The shards of another run of this sweep over this input are still at work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What the first job needs to open a run's shards, in the open transaction of a connection to the queue."""

    sweep: Sweep[Any]
    ctx: RunCtx
    held: BatchConnection

    def store(self, setup: Json, positions: Sequence[Position], row: NewBackfill) -> Any:
        """Store the setup, with a checkpoint and a job for each position; each is the beginning of a range. Answer it.

        One range needs neither: the run is an ordinary one. Raises OthersLive, so that everything rolls back, where a
        shard of another run has not ended.
        """
        ctx, stores = self.ctx, self.held.stores
        stored = ctx.step.run(SETUP_STEP, lambda: setup, tx=self.held.connection)
        if len(positions) == 1 or stores.ledger is None or stores.shards is None:
            return stored
        stores.ledger.start(row)
        figures = [figures_of(number, at) for number, at in enumerate(positions, 1)]
        for number, at in enumerate(positions, 1):
            self._put(stores, number, at)
        stores.shards.put(ctx.claim, ctx.run_id, figures)
        siblings = [self._sibling(number) for number in range(2, len(positions) + 1)]
        if any(result.deduplicated for result in stores.jobs.enqueue(siblings)):
            raise OthersLive
        return stored

    def _put(self, stores: Stores, number: int, at: Position) -> None:
        name = PAGES_STEP + shard_suffix(number)
        put = StepPut(run_id=self.ctx.run_id, name=name, kind="checkpoint", status="done", output=at.as_json())
        stores.steps.put(put, self.ctx.claim)

    def _sibling(self, number: int) -> NewJob:
        from rowsweep.jobs.request import NewJob

        record, suffix = self.ctx.record, shard_suffix(number)
        return NewJob(
            id=ambient.new_id(),
            run_id=record.run_id,
            name=record.name,
            queue=record.queue,
            input=record.input,
            idempotency_key=self.sweep.launch_key(record.input) + suffix,
            max_attempts=record.max_attempts,
            priority=record.priority,
            concurrency_key=(record.concurrency_key or "") + suffix,
            tenant_id=record.tenant_id,
            traceparent=record.traceparent,
            enqueued_by=record.enqueued_by,
        )


def figures_of(number: int, at: Position) -> ShardFigures:
    """Answer the figures of a shard that has not begun."""
    assert at.range is not None  # noqa: S101 - a shard's position has a range
    after, to = at.range.as_json()
    return ShardFigures(number=number, status="waiting", after=after, to=to)


def is_other_live(ledger: LedgerStore, sweep: Sweep[Any], ctx: RunCtx) -> bool:
    """Say whether another run of the sweep over this input has shards at work, or paused."""
    rows = [*ledger.list(name=sweep.name, status="running"), *ledger.list(name=sweep.name, status="paused")]
    return any(
        row.run_id != ctx.run_id and row.input == ctx.record.input and row.shards and row.job_state in LIVE_STATES
        for row in rows
    )
