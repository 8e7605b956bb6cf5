"""The two ways a handler does a batch, in its transaction and outside, and how any batch is closed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from psycopg import OperationalError
from psycopg import errors as pg
from psycopg.pq import TransactionStatus

from rowsweep.errors import InvariantBroken, LeaseLost, TransactionEnded
from rowsweep.queue.records import BatchClose
from rowsweep.sweeps.batch.batch import Batch, BatchPlace
from rowsweep.sweeps.batch.connection import MARKER
from rowsweep.sweeps.batch.pages import Page, PageFinder
from rowsweep.sweeps.batch.reading import Form, PageRows
from rowsweep.sweeps.batch.writeback import PageKeys, write_back
from rowsweep.sweeps.passes.position import PAGES_STEP, Plan, Position, as_checkpoint

if TYPE_CHECKING:
    from rowsweep.queue.contract import LedgerStore
    from rowsweep.queue.records import BatchClosed, Behind, SweepTotals
    from rowsweep.queue.shards import ShardFigures
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.batch.connection import BatchConnection
    from rowsweep.sweeps.keyset.catalog import Column
    from rowsweep.sweeps.late.spending import Spending

Handler = Callable[[Batch], Any]


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


class PageWork(Protocol):
    """Do the next page and commit it with its checkpoint."""

    def next(self, at: Position, limit: int, *, stored: bool) -> BatchDone:
        """Answer the position behind the page; an ended one where there was none. `stored`: `at` is in the database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerCall:
    """Hand a page to the application's function and write back what it returns."""

    finder: PageFinder
    handler: Handler
    columns: Sequence[Column]
    run_id: str
    ctx: RunCtx | None
    input: Any
    spending: Spending | None = None

    def batch(self, at: Position, to: tuple[str, ...], reader: PageRows) -> Batch:
        """Make what the handler is given."""
        return Batch(
            place=self.place(at, to),
            ctx=self.ctx,
            input=self.input,
            connection=self.finder.held.connection,
            reader=reader,
        )

    def place(self, at: Position, to: tuple[str, ...]) -> BatchPlace:
        """Say where a page is."""
        return BatchPlace(run_id=self.run_id, index=at.index + 1, after=at.cursor, to=to)

    def reader(
        self, at: Position, to: tuple[str, ...], *, lock: bool, kind: type[PageRows] = PageRows, **more: Any
    ) -> PageRows:
        """Make what reads the page."""
        return kind(
            connection=lambda: self.finder.held.connection,
            statements=self.finder.statements,
            columns=self.columns,
            values=self.finder.page_values(at, to),
            started=at.cursor is not None,
            lock=lock,
            **more,
        )

    def write(self, value: object, at: Position, to: tuple[str, ...], reader: PageKeys) -> int:
        """Write back what the handler returned; answer how many rows changed."""
        return write_back(
            value,
            held=self.finder.held,
            statements=self.finder.statements,
            reader=reader,
            values=self.finder.page_values(at, to),
            started=at.cursor is not None,
        )


@dataclass(slots=True, kw_only=True)
class AtomicWork:
    """Run the handler in the batch's transaction: its writes commit with the checkpoint, exactly once.

    A page's matching rows are locked and counted before the handler runs: by reading them in the form that the handler
    asked for in the batch before, else by a statement that only counts.
    """

    call: HandlerCall
    closer: Closer
    _habit: Form | None = field(default=None, init=False)

    def next(self, at: Position, limit: int, *, stored: bool) -> BatchDone:
        """Do the next page."""
        finder = self.call.finder
        with finder.held.transaction() as marker:
            page = finder.find(at, limit)
            after = at.finished()
            if page is not None:
                rows, written = self.run(at, page)
                after = at.moved(page.to, rows=rows, written=written)
            closed = self.closer.close(at, after, marker, stored=stored)
        return BatchDone(at=after, is_full=page is not None and page.is_full, closed=closed)

    def run(self, at: Position, page: Page) -> tuple[int, int]:
        """Run the handler over a found page and write back; answer how many rows it had, and how many changed."""
        call = self.call
        reader = call.reader(at, page.to, lock=True)
        matching = call.finder.count(at, page, lock=True) if self._habit is None else reader.read(self._habit)
        if not matching:
            return 0, 0
        value = call.handler(call.batch(at, page.to, reader))
        check_transaction(call.finder.held.connection)
        written = call.write(value, at, page.to, reader)
        self._habit = reader.first_asked
        # A row that came into the page's range since it was counted is among those read.
        rows = matching if reader.height is None else reader.height
        if call.spending is not None:
            call.spending.behind_locked(at, page.to, rows=rows, written=written, by_frame=value is not None)
        return rows, written

    def alone(self, at: Position, page: Page) -> int:
        """Run the handler in a transaction of its own, without a checkpoint; answer how many rows changed."""
        with self.call.finder.held.transaction():
            return self.run(at, page)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideWork:
    """Run the handler outside any transaction, over bounds stored beforehand: at least once, with a stable key."""

    call: HandlerCall
    closer: Closer

    def next(self, at: Position, limit: int, *, stored: bool) -> BatchDone:
        """Plan the next page where none is planned, run the handler, then store the checkpoint: never the reverse."""
        finder = self.call.finder
        if at.plan is None:
            with finder.held.transaction() as marker:
                page = finder.find(at, limit)
                rows = 0 if page is None else finder.count(at, page, lock=False)
                if page is None or not rows:
                    after = at.finished() if page is None else at.moved(page.to, rows=0, written=0)
                else:
                    after = at.planned(Plan(to=page.to, rows=rows))
                closed = self.closer.close(at, after, marker, stored=stored)
            return BatchDone(at=after, is_full=page is not None and page.is_full, closed=closed)
        return self._run(at, at.plan)

    def _run(self, at: Position, plan: Plan) -> BatchDone:
        call, held = self.call, self.call.finder.held
        reader = call.reader(at, plan.to, lock=False, within=held.transaction)
        value = call.handler(call.batch(at, plan.to, reader))
        while True:
            try:
                with held.transaction() as marker:
                    written = call.write(value, at, plan.to, reader)
                    if call.spending is not None:
                        call.spending.behind_handler(at, plan.to)
                    after = at.moved(plan.to, rows=plan.rows, written=written)
                    closed = self.closer.close(at, after, marker, stored=True)
            except CheckpointMoved:
                at = self.closer.again(at)
            else:
                return BatchDone(at=after, is_full=False, closed=closed)

    def alone(self, at: Position, page: Page) -> int:
        """Run the handler outside any transaction and write back in one; answer how many rows changed."""
        call, held = self.call, self.call.finder.held
        reader = call.reader(at, page.to, lock=False, within=held.transaction)
        value = call.handler(call.batch(at, page.to, reader))
        with held.transaction():
            written = call.write(value, at, page.to, reader)
            if call.spending is not None:
                call.spending.behind_handler(at, page.to)
        return written


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
