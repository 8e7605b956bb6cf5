"""Pages read ahead of their turn and being computed: a fixed number of them, in key order."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from rowsweep.sweeps.batch.forms.frames import column_form, csv_line
from rowsweep.sweeps.batch.forms.reading import PageRows
from rowsweep.sweeps.keyset.cursor import run

if TYPE_CHECKING:
    import polars as pl
    from psycopg import sql

    from rowsweep.sweeps.batch.batch import BatchPlace
    from rowsweep.sweeps.batch.pages import Page
    from rowsweep.sweeps.batch.work import HandlerCall
    from rowsweep.sweeps.executors.calls import Calls, Coming
    from rowsweep.sweeps.passes.position import KeyRange, Position


@dataclass(kw_only=True)
class SeenRows(PageRows):
    """A page's rows, with the digest of what was seen of them."""

    def seen(self) -> bytes | None:
        """Answer the digest of the rows as they were read, in the form of `digest`; None where there were none."""
        return self._digest if self._table is not None else self.digest(lock=False)

    def digest(self, *, lock: bool) -> bytes | None:
        """Have the database digest the rows as they are now, locking them where asked."""
        line = csv_line(column_form(column) for column in self.columns)
        query = self.statements.digest_csv(line, started=self.started, lock=lock)
        row = run(self.connection(), query, self.values, binary=True).fetchone()
        return None if row is None or row[0] is None else bytes(row[0])

    def _read_bytes(self, query: sql.Composed) -> bytes | None:
        data = super()._read_bytes(query)
        self._digest = None if data is None else hashlib.sha256(data).digest()
        return data


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """The keys of a page as its handler sees them in a frame; None leaves those that come back to the database."""

    known: pl.DataFrame | None

    @classmethod
    def of(cls, reader: PageRows) -> KnownKeys:
        """Take those of a page that was read."""
        return cls(reader.keys())

    def keys(self) -> pl.DataFrame | None:
        """Answer them."""
        return self.known

    def has_keys(self, rows: object) -> bool:  # noqa: ARG002 - what comes back is a frame
        """Say no: what comes back is no list."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAhead:
    """A page that is out: where it is, what was seen of it, and what will come back (nothing, of no rows)."""

    page: Page
    place: BatchPlace
    rows: int
    seen: bytes | None
    keys: KnownKeys
    coming: Coming | None
    limit: int
    range: KeyRange | None

    def is_next(self, at: Position, limit: int) -> bool:
        """Say whether its turn has come as it was sent out, and nobody wants pages of under half its size by now."""
        is_here = (self.place.after, self.place.index, self.range) == (at.cursor, at.index + 1, at.range)
        return is_here and self.limit <= 2 * limit


class ReadAhead:
    """Find, read and send out the pages behind the cursor, up to `depth` of them."""

    def __init__(self, call: HandlerCall, calls: Calls, depth: int) -> None:
        self._call = call
        self._calls = calls
        self._depth = depth
        self._pages: deque[PageAhead] = deque()
        self._alone = 0
        self._is_halted = False

    def first(self, at: Position, limit: int) -> PageAhead | None:
        """Answer the page whose turn it is, the others behind it on their way; None at the end.

        What fails while reading ahead fails no page before it: it is read again when its turn comes.
        """
        if self._pages and not self._pages[0].is_next(at, limit):
            self.drop()
        if not self._pages:
            self._is_halted = False
        while len(self._pages) < (1 if self._alone else self._depth) and not self._is_halted:
            try:
                page = self._read(self._edge(at), limit)
            except Exception:  # raised where it is the first page; else it is met again at its turn
                if not self._pages:
                    raise
                self._is_halted = True
                break
            if page is None:
                break
            self._pages.append(page)
        return self._pages[0] if self._pages else None

    def done(self) -> None:
        """Take the first page as done."""
        self._pages.popleft()
        self._alone = max(self._alone - 1, 0)

    def drop(self) -> None:
        """Forget all pages; what they were computed to is lost."""
        self._pages.clear()
        self._calls.lane.cancel()

    def go_alone(self) -> None:
        """Send the next pages out one at a time, so that the one that breaks the executor is known."""
        self._alone = self._depth

    def _edge(self, at: Position) -> Position:
        if not self._pages:
            return at
        last = self._pages[-1]
        return replace(at, index=last.place.index - (0 if last.rows else 1), cursor=last.page.to)

    def _read(self, at: Position, limit: int) -> PageAhead | None:
        finder = self._call.finder
        with finder.held.transaction(reads=True):
            page = finder.find(at, limit)
            if page is None:
                return None
            reader = _rows_of(self._call, at, page)
            rows = self._calls.read(reader)
            seen = reader.seen()
        place = self._call.place(at, page.to)
        return PageAhead(
            page=page,
            place=place,
            rows=rows,
            seen=seen,
            keys=KnownKeys.of(reader),
            coming=self._calls.send(reader, place) if rows else None,
            limit=limit,
            range=at.range,
        )


def digest_now(call: HandlerCall, at: Position, page: Page) -> bytes | None:
    """Lock a page's rows and digest them as they are now."""
    return _rows_of(call, at, page).digest(lock=True)


def _rows_of(call: HandlerCall, at: Position, page: Page) -> SeenRows:
    return cast("SeenRows", call.reader(at, page.to, lock=False, kind=SeenRows))
