"""The two ways a handler does a batch: in its transaction, and outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from rowsweep.sweeps.batch.batch import Batch, BatchPlace
from rowsweep.sweeps.batch.closing import BatchDone, CheckpointMoved, Closer, check_transaction
from rowsweep.sweeps.batch.forms.reading import Form, PageRows
from rowsweep.sweeps.batch.forms.writeback import PageKeys, write_back
from rowsweep.sweeps.batch.pages import Page, PageFinder
from rowsweep.sweeps.passes.position import Plan, Position

if TYPE_CHECKING:
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.keyset.catalog import Column
    from rowsweep.sweeps.late.spending import Spending

Handler = Callable[[Batch], Any]


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
        return self.closer.in_transaction(at, lambda: self.call.finder.find(at, limit), self.run, stored=stored)

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
        held.give_way(for_long=True)
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
        held.give_way(for_long=True)
        value = call.handler(call.batch(at, page.to, reader))
        with held.transaction():
            written = call.write(value, at, page.to, reader)
            if call.spending is not None:
                call.spending.behind_handler(at, page.to)
        return written
