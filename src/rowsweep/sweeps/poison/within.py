"""Do a failing page by parts in the batch's one transaction, each part under a savepoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from psycopg import errors as pg
from psycopg.pq import TransactionStatus

from rowsweep.queue.stores.rejected import RejectedRow
from rowsweep.sweeps.batch.closing import BatchDone, check_transaction, transaction_ended
from rowsweep.sweeps.batch.connection import pinned
from rowsweep.sweeps.batch.pages import Page, PageFinder
from rowsweep.sweeps.keyset.cursor import run
from rowsweep.sweeps.poison.bisection import Bisection
from rowsweep.sweeps.poison.blame import may_blame_rows
from rowsweep.sweeps.poison.closing import said
from rowsweep.sweeps.poison.listed import keys_of

if TYPE_CHECKING:
    from rowsweep.sweeps.passes.position import Position
    from rowsweep.sweeps.poison.closing import ListingCloser
    from rowsweep.sweeps.poison.listed import Key, ListedFinder

Part = Callable[["Position", Page], tuple[int, int]]

_BEGIN: Final = "savepoint rowsweep_part"
_KEEP: Final = "release savepoint rowsweep_part"
_UNDO: Final = "rollback to savepoint rowsweep_part; release savepoint rowsweep_part"
_HAS_DEFERRABLE: Final = "select exists (select from pg_catalog.pg_trigger t where t.tgdeferrable)"
# What a commit would refuse is refused here; then every constraint is again as the handler left it.
_CHECK: Final = "savepoint rowsweep_check; set constraints all immediate; rollback to savepoint rowsweep_check"


@dataclass(slots=True)
class _Parts:
    """What the parts of one page came to."""

    rows: int = 0
    written: int = 0
    rejected: list[RejectedRow] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinTransaction:
    """Do the next page by parts: what succeeds stays in, what fails by itself is set aside, and all commits at once.

    `part` does the rows that `listed` finds, in the open transaction.
    """

    finder: PageFinder
    listed: ListedFinder
    part: Part
    closer: ListingCloser

    @property
    def is_open(self) -> bool:
        """Never: a page is done in one go."""
        return False

    def next(self, at: Position, limit: int, *, stored: bool) -> BatchDone:
        """Do the next page."""
        with self.finder.held.transaction() as marker:
            page, parts = self.finder.find(at, limit), _Parts()
            after = at.finished()
            if page is not None:
                self._by_parts(at, page, parts)
                after = at.moved(page.to, rows=parts.rows, written=parts.written)
            closed = self.closer.close_with(parts.rejected, at, after, marker, stored=stored)
        self.closer.tell(at, after, parts.rejected)
        return BatchDone(at=after, is_full=page is not None and page.is_full, closed=closed, by_parts=True)

    def _by_parts(self, at: Position, page: Page, parts: _Parts) -> None:
        keys = keys_of(self.finder, at, page)
        limits, signal = self.closer.listing.limits, self.closer.ctx.signal
        checks = self._has_deferrable()
        bisection = Bisection(len(keys))
        while (bounds := bisection.next()) is not None:
            signal.raise_if_aborted()
            start, end = bounds
            before = at if start == 0 else replace(at, cursor=keys[start - 1])
            error = self._try(before, keys[start:end], parts, checks=checks)
            if error is None:
                bisection.succeeded()
            elif bisection.failed():
                parts.rejected.append(self.closer.listing.row(keys[start], error))
                limits.check(len(parts.rejected), rows=len(keys), said=said(parts.rejected[-1]))
        if parts.rejected:
            seen = parts.rows + len(parts.rejected)
            limits.check(len(parts.rejected), rows=seen, said=said(parts.rejected[-1]))

    def _try(self, before: Position, keys: list[Key], parts: _Parts, *, checks: bool) -> Exception | None:
        """Do some rows under a savepoint; answer the error they fail with, raise any that is not theirs."""
        held, connection = self.finder.held, self.finder.held.connection
        held.stage = None  # the staging table empties itself at a commit alone
        self.listed.take(keys)
        # A trigger of the part before may have left other forms of values: this one's keys would name no row in them.
        connection.execute(f"{_BEGIN}; {pinned()}", prepare=False)
        try:
            rows, written = self.part(before, Page(is_full=False, to=keys[-1]))
            check_transaction(connection)
            if checks:
                connection.execute(_CHECK, prepare=False)
            connection.execute(_KEEP, prepare=False)
        except Exception as error:
            held.stage = None
            if not may_blame_rows(error):
                raise
            self._undo(connection, error)
            return error
        parts.rows += rows
        parts.written += written
        return None

    def _undo(self, connection: Any, error: Exception) -> None:
        if connection.info.transaction_status == TransactionStatus.IDLE:
            raise transaction_ended() from error
        try:
            connection.execute(_UNDO, prepare=False)
        except pg.InvalidSavepointSpecification:
            raise transaction_ended() from error

    def _has_deferrable(self) -> bool:
        """Say whether anything in the database is checked at the commit; that is asked of the catalog once a page."""
        row = run(self.finder.held.connection, _HAS_DEFERRABLE).fetchone()
        return row is not None and bool(row[0])
