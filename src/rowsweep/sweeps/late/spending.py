"""Whether a sweep uses its condition up: no row that it did still matches when its batch commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from rowsweep.sweeps.keyset.cursor import run

if TYPE_CHECKING:
    from rowsweep.sweeps.batch.pages import PageFinder
    from rowsweep.sweeps.passes.position import Position

# Rows that others wrote: an older transaction than this one, or a younger one that is over. This one's savepoints are
# younger and not over; of ids that the snapshot's end does not reach nothing is asked.
_OWN: Final = "pg_catalog.pg_current_xact_id()::pg_catalog.text::pg_catalog.int8"
_OTHERS: Final = f"""case
  when pg_catalog.age(xmin) > 0 then true
  when {_OWN} - pg_catalog.age(xmin)
       < pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::pg_catalog.text::pg_catalog.int8
  then pg_catalog.pg_xact_status(({_OWN} - pg_catalog.age(xmin))::pg_catalog.text::pg_catalog.xid8) = 'committed'
  else false end"""
_OURS: Final = f"not {_OTHERS}"
# Rows that it locked or wrote: one that others put into the page meanwhile is not locked.
_TOUCHED: Final = f"not (xmax = 0 and {_OTHERS})"
_ANY: Final = "true"


@dataclass(slots=True, kw_only=True)
class Spending:
    """Look behind each batch, before it commits, until one leaves a row that matches still: that is then `noted`.

    The note joins the batch's transaction where that is the queue's, so that it is stored with the batch or not at all.
    """

    finder: PageFinder
    note: Callable[[Any], None]
    is_noted: bool
    _noted_at: int | None = field(default=None, init=False)
    _texts: dict[Any, str] = field(default_factory=dict, init=False)

    def behind_locked(self, at: Position, to: tuple[str, ...], *, rows: int, written: int, by_frame: bool) -> None:
        """Look at a page of which `rows` were locked and handed out, and `written` changed by a returned frame."""
        if by_frame and written < rows:
            self._check(at, lambda: rows - written)
        else:
            self._check(at, lambda: self._left(at, to, _OURS if by_frame else _TOUCHED))

    def behind_update(self, at: Position, to: tuple[str, ...]) -> None:
        """Look at a page that one statement updated."""
        self._check(at, lambda: self._left(at, to, _OURS))

    def behind_handler(self, at: Position, to: tuple[str, ...]) -> None:
        """Look at a page whose handler had no transaction: who wrote a row cannot be told."""
        self._check(at, lambda: self._left(at, to, _ANY))

    def _check(self, at: Position, count_left: Callable[[], int]) -> None:
        self.is_noted = self.is_noted or (self._noted_at is not None and self._noted_at < at.index)
        if not self.is_noted and count_left():
            self.note(self.finder.held.connection)
            self._noted_at = at.index  # only a later index tells that this batch, and the note in it, did commit

    def _left(self, at: Position, to: tuple[str, ...], whose: str) -> int:
        connection, started = self.finder.held.connection, at.cursor is not None
        if (started, whose) not in self._texts:
            composed = self.finder.statements.left(sql.SQL(whose), started=started)
            self._texts[started, whose] = composed.as_string(connection)
        row = run(connection, self._texts[started, whose], self.finder.page_values(at, to), prepare=True).fetchone()
        assert row is not None  # noqa: S101 - an aggregate
        return int(row[0])
