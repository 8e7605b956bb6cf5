"""Batches that the database does by itself: each page is updated by the declared expressions, no row travels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rowsweep.sweeps.batch.chain import Chain
from rowsweep.sweeps.batch.closing import BatchDone

if TYPE_CHECKING:
    from rowsweep.sweeps.batch.closing import Closer
    from rowsweep.sweeps.batch.pages import Page, PageFinder
    from rowsweep.sweeps.passes.position import Position


class SetWork:
    """Update each page in the database by the declared expressions.

    `goes_on` says, once a batch is done, whether the next one may begin together with its end.
    """

    def __init__(
        self, *, finder: PageFinder, closer: Closer, assignments: Mapping[str, str], goes_on: Callable[[], bool]
    ) -> None:
        self._finder = finder
        self._closer = closer
        self._assignments = assignments
        self._chain = Chain(finder.held, closer, self, goes_on)

    def next(self, at: Position, limit: int, *, stored: bool) -> BatchDone:
        """Update the next page."""
        if self._closer.chains:
            after, page, closed = self._chain.next(at, limit, stored=stored)
        else:
            with self._finder.held.transaction() as marker:
                page = self.find(at, limit)
                after = self.after(at, page, None if page is None else self.send(at, page))
                closed = self._closer.close(at, after, marker, stored=stored)
        return BatchDone(at=after, is_full=page is not None and page.is_full, closed=closed)

    def run(self, at: Position, page: Page) -> tuple[int, int]:
        """Update a found page; answer how many rows it had, and how many changed."""
        rows = int(self.send(at, page).rowcount)
        return rows, rows

    def alone(self, at: Position, page: Page) -> int:
        """Update a page in a transaction of its own, without a checkpoint; answer how many rows changed."""
        with self._finder.held.transaction():
            return self.run(at, page)[1]

    def find(self, at: Position, limit: int) -> Page | None:
        """Find the next page, None at the end."""
        return self._finder.find(at, limit)

    def known(self, at: Position, limit: int) -> Page | None:
        """Answer the next page where it was found ahead."""
        return self._finder.known(at, limit)

    def send(self, at: Position, page: Page) -> Any:
        """Send the update of a page's matching rows; answer its cursor."""
        return self._finder.update(self._assignments, at, page)

    def after(self, at: Position, page: Page | None, cursor: Any) -> Position:
        """Answer the position behind an updated page, or the end."""
        return at.finished() if page is None else at.moved(page.to, rows=cursor.rowcount, written=cursor.rowcount)

    def concerns(self, page: Page | None) -> None:
        """Note which page an error from now on is about."""
        self._finder.concerns(page)
