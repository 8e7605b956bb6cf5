"""Do a failing page by parts, each a batch of its own: where the work is not in the checkpoint's transaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rowsweep.sweeps.batch.closing import BatchDone
from rowsweep.sweeps.batch.pages import Page, PageFinder
from rowsweep.sweeps.batch.work import PageWork
from rowsweep.sweeps.poison.bisection import Bisection
from rowsweep.sweeps.poison.blame import may_blame_rows
from rowsweep.sweeps.poison.closing import said
from rowsweep.sweeps.poison.listed import keys_of

if TYPE_CHECKING:
    from rowsweep.queue.stores.ledger import BatchClosed
    from rowsweep.queue.stores.rejected import RejectedRow
    from rowsweep.sweeps.passes.position import Position
    from rowsweep.sweeps.poison.closing import ListingCloser
    from rowsweep.sweeps.poison.listed import Key, ListedFinder


@dataclass(slots=True)
class _Page:
    """A page that is done by parts: its keys, its end, and where the checkpoint stands by now."""

    keys: list[Key]
    to: Key
    here: Position
    stored: bool
    bisection: Bisection
    said: str | None = None


@dataclass(slots=True, kw_only=True)
class StepByStep:
    """Do one part of the page a call, and store the checkpoint behind it.

    A part's bounds are stored before it runs, as any batch's are: a crash repeats that part alone, over the same bounds
    and under the same `batch.key`. `work` does the rows that `listed` finds.
    """

    finder: PageFinder
    listed: ListedFinder
    work: PageWork
    closer: ListingCloser
    _page: _Page | None = field(default=None, init=False)

    @property
    def is_open(self) -> bool:
        """Whether parts of the page are left."""
        return self._page is not None and self._page.bisection.next() is not None

    def next(self, at: Position, limit: int, *, stored: bool) -> BatchDone:
        """Do the next part, or pass a row that fails by itself."""
        page = self._page
        if page is None or (page.here.index, page.here.cursor) != (at.index, at.cursor):
            page = self._open(at, limit, stored=stored)
        self._page = None  # where this call fails, the checkpoint has to be asked anew
        done = self._next_part(page)
        self._page = page
        return done

    def _open(self, at: Position, limit: int, *, stored: bool) -> _Page:
        """Find the keys of the page that fails: the one that is planned, else the next."""
        with self.finder.held.transaction():
            page = self.finder.find(at, limit) if at.plan is None else Page(is_full=False, to=at.plan.to)
            keys = [] if page is None else keys_of(self.finder, at, page)
        to = () if page is None else page.to
        return _Page(keys=keys, to=to, here=at, stored=stored, bisection=Bisection(len(keys)))

    def _next_part(self, page: _Page) -> BatchDone:
        while (bounds := page.bisection.next()) is not None:
            start, end = bounds
            to = page.to if end == len(page.keys) else page.keys[end - 1]
            self.listed.take(page.keys[start:end], to)
            before = page.here
            try:
                closed = self._run(page, end - start)
            except Exception as error:
                if not may_blame_rows(error):
                    raise
                if page.bisection.failed():
                    return self._reject(page, start, to, error)
            else:
                page.bisection.succeeded()
                self.closer.tell(before, page.here, ())
                return self._done(page, closed)
        # The page's rows are gone, or there is none.
        here = page.here
        return self._done(
            page, self._move(page, here.moved(page.to, rows=0, written=0) if page.to else here.finished())
        )

    def _run(self, page: _Page, rows: int) -> BatchClosed:
        """Store the part's bounds, then do it; one without matching rows is passed by the first of these."""
        if page.here.plan is not None:
            self._move(page, page.here.unplanned())
        while True:
            done = self.work.next(page.here, rows, stored=page.stored)
            page.here, page.stored = done.at, True
            if done.at.plan is None:
                return done.closed

    def _reject(self, page: _Page, place: int, to: Key, error: Exception) -> BatchDone:
        limits, row = self.closer.listing.limits, self.closer.listing.row(page.keys[place], error)
        limits.check(1, rows=len(page.keys) - place, said=said(row))
        before, page.said = page.here, said(row)
        closed = self._move(page, before.moved(to, rows=0, written=0), row)
        self.closer.tell(before, page.here, [row])
        return self._done(page, closed)

    def _move(self, page: _Page, after: Position, *rejected: RejectedRow) -> BatchClosed:
        with self.closer.held.transaction() as marker:
            closed = self.closer.close_with(rejected, page.here, after, marker, stored=page.stored)
        page.here, page.stored = after, True
        return closed

    def _done(self, page: _Page, closed: BatchClosed) -> BatchDone:
        if page.said is not None and page.bisection.next() is None:
            self.closer.listing.limits.check(0, rows=0, said=page.said)
        return BatchDone(at=page.here, is_full=False, closed=closed, by_parts=True)
