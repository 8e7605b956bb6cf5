"""Batches of expressions that come to something else each time: each is looked behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rowsweep.sweeps.batch.closing import BatchDone
from rowsweep.sweeps.batch.in_place import SetWork

if TYPE_CHECKING:
    from rowsweep.sweeps.batch.closing import Closer
    from rowsweep.sweeps.batch.pages import Page, PageFinder
    from rowsweep.sweeps.late.spending import Spending
    from rowsweep.sweeps.passes.position import Position


class SpentSetWork(SetWork):
    """Update each page in the database by the declared expressions, and ask whether a row of it matches still."""

    def __init__(
        self, *, finder: PageFinder, closer: Closer, assignments: Mapping[str, str], spending: Spending
    ) -> None:
        super().__init__(finder=finder, closer=closer, assignments=assignments, goes_on=lambda: False)
        self._spending = spending

    def next(self, at: Position, limit: int, *, stored: bool) -> BatchDone:
        """Update the next page."""
        with self._finder.held.transaction() as marker:
            page = self.find(at, limit)
            after = at.finished()
            if page is not None:
                rows, written = self.run(at, page)
                after = at.moved(page.to, rows=rows, written=written)
            closed = self._closer.close(at, after, marker, stored=stored)
        return BatchDone(at=after, is_full=page is not None and page.is_full, closed=closed)

    def run(self, at: Position, page: Page) -> tuple[int, int]:
        """Update a found page and look behind it; answer how many rows it had, and how many changed."""
        rows, written = super().run(at, page)
        if written:
            self._spending.behind_update(at, page.to)
        return rows, written
