"""Do pages as any sweep does, and one that keeps failing by parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from rowsweep.jobs.attempts.classify import classify
from rowsweep.sweeps.batch.closing import Closer
from rowsweep.sweeps.batch.in_place import SetWork
from rowsweep.sweeps.batch.work import AtomicWork, PageWork
from rowsweep.sweeps.executors.work import ExecutorWork
from rowsweep.sweeps.poison.blame import may_blame_rows
from rowsweep.sweeps.poison.listed import ListedFinder
from rowsweep.sweeps.poison.steps import StepByStep
from rowsweep.sweeps.poison.within import WithinTransaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowsweep.sweeps.batch.closing import BatchDone
    from rowsweep.sweeps.batch.pages import PageFinder
    from rowsweep.sweeps.passes.position import Position
    from rowsweep.sweeps.poison.closing import ListingCloser

TRIES: Final = 3
BETWEEN_TRIES_SECONDS: Final = 1.0


class ByParts(PageWork, Protocol):
    """Do a failing page by parts."""

    @property
    def is_open(self) -> bool:
        """Whether parts of the page are left."""


class SettingAside:
    """Try a failing page three times, at an error that no other try can mend once; then do it by parts."""

    def __init__(self, whole: PageWork, by_parts: ByParts, closer: ListingCloser) -> None:
        self._whole = whole
        self._by_parts = by_parts
        self._closer = closer
        self._tries = 0
        self._is_parted = False

    def next(self, at: Position, limit: int, *, stored: bool) -> BatchDone:
        """Do the next page, or the next part of one."""
        if self._is_parted:
            done = self._by_parts.next(at, limit, stored=stored)
            self._is_parted = self._by_parts.is_open
        else:
            done = self._whole.next(at, limit, stored=stored)
            self._closer.tell(at, done.at, ())
        if done.at.plan is None and not self._is_parted:
            self._tries = 0
        return done

    def takes(self, error: BaseException) -> bool:
        """Say whether the failure of a page is followed up here: its rows may be to blame."""
        return not self._is_parted and may_blame_rows(error)

    def pause_seconds(self, error: BaseException) -> float:
        """Note a failure that was taken, and answer how long to wait before the next try."""
        self._tries += 1
        if self._tries < TRIES and classify(error) != "terminal":
            return BETWEEN_TRIES_SECONDS
        self._is_parted = True
        return 0.0


def setting_aside(
    finder: PageFinder, closer: ListingCloser, work_over: Callable[[PageFinder, Closer], PageWork]
) -> SettingAside:
    """Compose the work of a sweep that sets rows aside, of what does the pages that a finder finds."""
    listed = ListedFinder.beside(finder)
    part = work_over(listed, closer)
    by_parts: ByParts
    if isinstance(part, (SetWork, AtomicWork, ExecutorWork)):
        by_parts = WithinTransaction(finder=finder, listed=listed, part=part.run, closer=closer)
    else:
        by_parts = StepByStep(finder=finder, listed=listed, work=part, closer=closer)
    return SettingAside(work_over(finder, closer), by_parts, closer)
