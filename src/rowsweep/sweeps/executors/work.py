"""Do batches whose handler runs in an executor, several pages ahead, each written back as an atomic batch is."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rowsweep.clock import real_monotonic
from rowsweep.sweeps.batch.closing import BatchDone, Closer, check_transaction
from rowsweep.sweeps.batch.work import HandlerCall
from rowsweep.sweeps.executors.ahead import KnownKeys, PageAhead, ReadAhead, digest_now
from rowsweep.sweeps.executors.far import PageBack

if TYPE_CHECKING:
    import polars as pl

    from rowsweep.sweeps.batch.pages import Page
    from rowsweep.sweeps.executors.calls import Calls
    from rowsweep.sweeps.passes.position import Position


@dataclass(slots=True, kw_only=True)
class ExecutorWork:
    """Have pages computed out there ahead of their turn; write each back under its rows' locks, with its checkpoint.

    A page is read without locks. When its turn comes its rows are locked and compared with what the handler saw, by
    a digest that the database makes of both: where one changed, went, or came, the page is computed again under those
    locks. So what is written is what the handler makes of the rows as they are, as if it had run in the transaction.
    """

    call: HandlerCall
    closer: Closer
    calls: Calls
    ahead: int | None
    _pages: ReadAhead | None = field(default=None, init=False)

    def next(self, at: Position, limit: int, *, stored: bool) -> BatchDone:
        """Do the next page.

        Where the executor's processes died, pages go out one at a time to a new one; the page that kills that too
        raises BrokenExecutor. Whatever fails, the pages ahead are dropped, to be read again.
        """
        for is_last in (False, True):
            try:
                return self._next(at, limit, stored=stored)
            except BrokenExecutor as error:
                is_renewed = self.calls.lane.renew(error)
                self._drop()
                if not is_renewed or is_last:
                    raise
                if self._pages is not None:
                    self._pages.go_alone()
            except BaseException:
                self._drop()
                raise
        raise AssertionError  # unreachable: the last round answers or raises

    def _next(self, at: Position, limit: int, *, stored: bool) -> BatchDone:
        aside_ms, pages = self._started()
        first, back = self._computed(pages, at, limit)
        finder = self.call.finder
        with finder.held.transaction() as marker:
            page = finder.find(at, limit) if first is None else first.page
            after = at.finished()
            if page is not None:
                rows, written = self._apply(at, page, first, back)
                after = at.moved(page.to, rows=rows, written=written)
            closed = self.closer.close(at, after, marker, stored=stored)
        if first is not None:
            pages.done()
        return BatchDone(at=after, is_full=page is not None and page.is_full, closed=closed, aside_ms=aside_ms)

    def run(self, at: Position, page: Page) -> tuple[int, int]:
        """Do a page in the open transaction, under its rows' locks; answer its rows, and how many of them changed."""
        call = self.call
        reader = call.reader(at, page.to, lock=True)
        rows = self.calls.read(reader)
        if not rows:
            return 0, 0
        value = self.calls.compute(reader, call.place(at, page.to))
        check_transaction(call.finder.held.connection)
        return rows, self._write(at, page, rows, value, KnownKeys.of(reader))

    def _started(self) -> tuple[float, ReadAhead]:
        """Start the executor where it is not; answer how long that took, and the pages ahead."""
        began = real_monotonic()
        if not self.calls.start() and self._pages is not None:
            return 0.0, self._pages
        depth = self.calls.lane.depth(self.ahead)
        self._pages = self._pages or ReadAhead(self.call, self.calls, depth)
        return (real_monotonic() - began) * 1000, self._pages

    def _computed(self, pages: ReadAhead, at: Position, limit: int) -> tuple[PageAhead | None, PageBack | None]:
        """Answer the page whose turn it is, with what came of it."""
        while (first := pages.first(at, limit)) is not None:
            self.call.finder.concerns(first.page)
            if first.coming is None:
                return first, None
            self.call.finder.held.give_way(for_long=True)
            back = self.calls.take(first.coming)
            if back.wants is None:
                return first, back
            self.calls.widen(back.wants)
            pages.drop()
        return None, None

    def _apply(self, at: Position, page: Page, first: PageAhead | None, back: PageBack | None) -> tuple[int, int]:
        """Write a page back, or raise what its handler raised; neither counts where the rows are others by now."""
        if first is None or digest_now(self.call, at, page) != first.seen:
            return self.run(at, page)
        if back is None:
            return 0, 0
        return first.rows, self._write(at, page, first.rows, back.value(), first.keys)

    def _write(self, at: Position, page: Page, rows: int, value: pl.DataFrame | None, keys: KnownKeys) -> int:
        written = self.call.write(value, at, page.to, keys)
        if self.call.spending is not None:
            self.call.spending.behind_locked(at, page.to, rows=rows, written=written, by_frame=True)
        return written

    def _drop(self) -> None:
        if self._pages is not None:
            self._pages.drop()
