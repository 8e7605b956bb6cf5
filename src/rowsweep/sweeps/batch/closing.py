"""How a batch is closed: fence, checkpoint and ledger in its last statement, or the reason why it may not commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from psycopg import OperationalError
from psycopg import errors as pg
from psycopg.pq import TransactionStatus

from rowsweep.errors import InvariantBroken, LeaseLost, TransactionEnded
from rowsweep.queue.stores.ledger import BatchClose
from rowsweep.sweeps.batch.connection import MARKER
from rowsweep.sweeps.passes.position import PAGES_STEP, Position, as_checkpoint

if TYPE_CHECKING:
    from rowsweep.queue.stores.ledger import BatchClosed, Behind, LedgerStore, SweepTotals
    from rowsweep.queue.stores.shards import ShardFigures
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.batch.connection import BatchConnection
    from rowsweep.sweeps.batch.pages import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDone:
    """A committed batch: where the pass stands behind it, whether its page was full, and what the ledger wants.

    One done `by_parts`, for rows that fail by themselves, says nothing about how many rows a batch should take.
    `aside_ms` is time it took that says nothing of its size.
    """

    at: Position
    is_full: bool
    closed: BatchClosed
    by_parts: bool = False
    aside_ms: float = 0.0


class Checkpoint(Protocol):
    """What a moving step holds."""

    @property
    def index(self) -> int:
        """The index of the last finished batch."""

    def as_json(self) -> Any:
        """Answer the stored value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closer:
    """Close batches for one run: fence, checkpoint and ledger in the batch's last statement.

    `restarts` says whether the job has to count its attempts anew: it was tried before, and no batch of this attempt
    is committed yet. `shard` answers what one of a run's several jobs has to report, in the place of the totals.
    """

    ctx: RunCtx
    held: BatchConnection
    totals: Callable[[Any], SweepTotals]
    restarts: Callable[[], bool]
    step: str = PAGES_STEP
    shard: Callable[[Any, Any], ShardFigures | None] | None = None

    def in_transaction(
        self,
        at: Position,
        find: Callable[[], Page | None],
        do: Callable[[Position, Page], tuple[int, int]],
        *,
        stored: bool,
    ) -> BatchDone:
        """Find a page, do it and close its batch, in one transaction; `do` answers its rows, and how many changed."""
        with self.held.transaction() as marker:
            page = find()
            after = at.finished()
            if page is not None:
                rows, written = do(at, page)
                after = at.moved(page.to, rows=rows, written=written)
            closed = self.close(at, after, marker, stored=stored)
        return BatchDone(at=after, is_full=page is not None and page.is_full, closed=closed)

    def close(self, before: Checkpoint, after: Checkpoint, marker: str, *, stored: bool) -> BatchClosed:
        """Store `after` where `before` was stored; raises, so that the batch rolls back, where it may not commit."""
        return self.checked(self.ledger, self.made(before, after, marker, stored=stored))

    def again(self, at: Position) -> Position:
        """Answer the position as it is stored now where only the end of its range was moved; else CheckpointMoved."""
        with self.held.transaction():
            stores = self.held.stores
            step = stores.steps.get(self.ctx.run_id, self.step) if stores.steps.guard(self.ctx.claim) else None
        found = None if step is None else as_checkpoint(step.output, self.step)
        if found is None or found.range == at.range or replace(found, range=at.range) != at:
            raise CheckpointMoved
        return found

    @property
    def chains(self) -> bool:
        """Whether a batch's close may travel with the next batch: it is all there is to closing one."""
        return self.held.chains

    @property
    def ledger(self) -> LedgerStore:
        """The ledger over the batch's connection."""
        ledger = self.held.stores.ledger
        if ledger is None:
            raise InvariantBroken("The driver keeps no ledger.", fix="use PostgresDriver for sweeps")
        return ledger

    def made(
        self,
        before: Checkpoint,
        after: Checkpoint,
        marker: str | None = None,
        *,
        stored: bool,
        behind: Behind | None = None,
    ) -> BatchClose:
        """Make the close that moves `before` to `after`; only a plain one takes something with it."""
        is_batch, restarts = after.index > before.index, self.restarts()
        shard = None if self.shard is None else self.shard(before, after)
        return BatchClose(
            claim=self.ctx.claim,
            run_id=self.ctx.run_id,
            step=self.step,
            expected=before.as_json() if stored else None,
            value=after.as_json(),
            totals=self.totals(after) if is_batch and self.shard is None else None,
            marker=marker,
            restarts=restarts,
            shard=shard,
            behind=behind if stored and is_batch and not restarts and shard is None else None,
        )

    def checked(self, ledger: LedgerStore, close: BatchClose) -> BatchClosed:
        """Send a close; over a ledger that commits each call by itself the batch is done before it is noted."""
        closed = self.send(ledger, close)
        if not closed.open:
            raise marker_cleared() if self.held.is_as_begun() else transaction_ended()
        if not closed.held:
            raise self._lease_lost()
        if not closed.expected:
            raise CheckpointMoved
        return closed

    def send(self, ledger: LedgerStore, close: BatchClose) -> BatchClosed:
        """Send a close as it is: with the figures of one of a run's jobs where its jobs report."""
        if close.shard is None:
            return ledger.progress(close)
        shards = self.held.stores.shards
        if shards is None:
            raise InvariantBroken("The driver keeps no shards.", fix="use PostgresDriver for sweeps")
        return shards.move(close)

    def missed(self) -> Exception:
        """Ask in a transaction of its own why a close did not land: its claim is lost, or its checkpoint another."""
        with self.held.transaction():
            is_held = self.held.stores.steps.guard(self.ctx.claim)
        return CheckpointMoved() if is_held else self._lease_lost()

    def _lease_lost(self) -> LeaseLost:
        return LeaseLost(
            f"Another worker holds {self.ctx.job!r} now, or it was cancelled: this batch rolls back.",
            fix=f"rowsweep jobs show {self.ctx.job_id}",
            meta={"job_id": str(self.ctx.job_id)},
        )


class CheckpointMoved(Exception):
    """The stored checkpoint is not the one this batch started from: it has to be read again."""


def check_transaction(connection: Any) -> None:
    """Refuse to go on where the handler left the batch's transaction aborted, ended or lost."""
    if connection.closed or connection.broken:
        raise OperationalError("the connection was lost inside the handler, which went on without it")
    status = connection.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise pg.InFailedSqlTransaction(
            "the handler swallowed a database error: its transaction is aborted and nothing of this batch can commit; "
            "let the error out, or wrap the statement in `with batch.connection.transaction():`"
        )
    if status != TransactionStatus.INTRANS:
        raise transaction_ended()


def transaction_ended() -> TransactionEnded:
    """Make the refusal of a batch whose transaction the handler ended."""
    return TransactionEnded(
        "The handler ended the batch's transaction (COMMIT or ROLLBACK in its SQL): its writes and the checkpoint can "
        "no longer commit together; no checkpoint was stored.",
        fix="remove the COMMIT, use savepoints (`with batch.connection.transaction():`), or declare atomic=False",
    )


def marker_cleared() -> TransactionEnded:
    """Make the refusal of a batch whose transaction goes on without the setting that proves it."""
    return TransactionEnded(
        f"SQL in the batch (a trigger, a function or the handler's own) cleared the setting {MARKER}, by which the "
        "batch's transaction is known (RESET ALL, or set_config): what else the batch had set may be gone too, so it "
        "was rolled back; no checkpoint was stored.",
        fix="reset settings by their names there, or change them with SET LOCAL or a function's SET clause",
    )
