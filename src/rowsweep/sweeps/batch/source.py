"""Sweep another database than the queue's: its transaction commits first, then the checkpoint is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from psycopg.pq import TransactionStatus

from rowsweep.sweeps.batch.closing import BatchDone, CheckpointMoved
from rowsweep.sweeps.batch.pages import Page
from rowsweep.sweeps.passes.position import Plan

if TYPE_CHECKING:
    from rowsweep.sweeps.batch.closing import Closer
    from rowsweep.sweeps.batch.pages import PageFinder
    from rowsweep.sweeps.passes.position import Position

IDLE_MS: Final = 300_000
_QUESTION_SECONDS: Final = 1.0


class Lender(Protocol):
    """What lends connections in autocommit mode."""

    def sweep_connection(self, wanted: Callable[[], None] | None = None) -> AbstractContextManager[Any]:
        """Lend one for batches; `wanted` is called where somebody waits for one meanwhile."""

    def spare_connection(self) -> AbstractContextManager[Any]:
        """Lend one more, if there is one within a second."""

    def question_connection(self) -> AbstractContextManager[Any]:
        """Lend one for a question of a moment."""


class PooledSource:
    """Lend connections of the application's own pool, each given back as it was."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PooledSource) and other._pool is self._pool

    def __hash__(self) -> int:
        return hash(id(self._pool))

    def sweep_connection(self, wanted: Callable[[], None] | None = None) -> AbstractContextManager[Any]:  # noqa: ARG002 - a pool of psycopg's tells nobody
        """Lend one for batches."""
        return self._lent()

    def spare_connection(self) -> AbstractContextManager[Any]:
        """Lend one more, if there is one within a second."""
        return self._lent(timeout=_QUESTION_SECONDS)

    def question_connection(self) -> AbstractContextManager[Any]:
        """Lend one for a question, if there is one within a second: the application's own work goes first."""
        return self._lent(timeout=_QUESTION_SECONDS)

    @contextmanager
    def _lent(self, **given: float) -> Iterator[Any]:
        with self._pool.connection(**given) as connection:
            was = connection.autocommit
            connection.autocommit = True
            try:
                yield connection
            finally:
                if not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE:
                    connection.autocommit = was


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceWork:
    """Do pages of another database over bounds stored beforehand: at least once, never skipped.

    `work` does a page's work and answers how many rows changed; a crash between the source's commit and the checkpoint
    repeats it over the same bounds, with the same `batch.key`.
    """

    finder: PageFinder
    closer: Closer
    work: Callable[[Position, Page], int]

    def next(self, at: Position, limit: int, *, stored: bool) -> BatchDone:
        """Plan the next page where none is planned; else do its work, then store the checkpoint: never the reverse."""
        is_full = False
        if at.plan is None:
            after, is_full = self._planned(at, limit)
        else:
            written = self.work(at, Page(is_full=False, to=at.plan.to))
            after = at.moved(at.plan.to, rows=at.plan.rows, written=written)
        while True:
            try:
                with self.closer.held.transaction() as marker:
                    closed = self.closer.close(at, after, marker, stored=stored)
            except CheckpointMoved:
                if at.plan is None:
                    raise
                at = self.closer.again(at)
                after = replace(after, range=at.range)
            else:
                return BatchDone(at=after, is_full=is_full, closed=closed)

    def _planned(self, at: Position, limit: int) -> tuple[Position, bool]:
        with self.finder.held.transaction():
            page = self.finder.find(at, limit)
            rows = 0 if page is None else self.finder.count(at, page, lock=False)
        if page is None:
            return at.finished(), False
        if not rows:
            return at.moved(page.to, rows=0, written=0), page.is_full
        return at.planned(Plan(to=page.to, rows=rows)), page.is_full
