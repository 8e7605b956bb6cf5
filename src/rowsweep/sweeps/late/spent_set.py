"""Batches of expressions that come to something else each time: each is looked behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rowsweep.sweeps.batch.in_place import SetWork

if TYPE_CHECKING:
    from rowsweep.sweeps.batch.closing import BatchDone, Closer
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
        return self._closer.in_transaction(at, lambda: self.find(at, limit), self.run, stored=stored)

    def run(self, at: Position, page: Page) -> tuple[int, int]:
        """Update a found page and look behind it; answer how many rows it had, and how many changed."""
        rows, written = super().run(at, page)
        if written:
            self._spending.behind_update(at, page.to)
        return rows, written
