"""The search for rows whose keys a snapshot does not have, page by page of the table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import psycopg
from psycopg import sql

from rowsweep.sweeps.batch.pages import PageFinder
from rowsweep.sweeps.keyset.cursor import run
from rowsweep.sweeps.keyset.expressions import cursor_values
from rowsweep.sweeps.keyset.statements import Statements
from rowsweep.sweeps.late.judging import since
from rowsweep.sweeps.passes.position import Position

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rowsweep.sweeps.batch.connection import BatchConnection
    from rowsweep.sweeps.batch.pages import Page
    from rowsweep.sweeps.late.unseen.snapshot import EndSnapshot

Key: TypeAlias = tuple[str, ...]

PAGE_KEYS: Final = 10_000
_XID: Final = "xmin::pg_catalog.text::pg_catalog.int8"


class WrittenStatements(Statements):
    """The statements that tell who wrote the matching rows of a page, from one transaction id on."""

    __slots__ = ()

    def writers(self, low: int, *, started: bool) -> sql.Composed:
        """Answer every transaction that wrote one of them, by the lower half of its id, with the key of one."""
        return sql.SQL("select distinct on ({xid}) {xid}, {texts} from {table} where {rows} order by {xid}").format(
            xid=sql.SQL(_XID),
            texts=self._key_texts(),
            table=self.table.identifier,
            rows=self._since(low, started=started),
        )

    def written(self, low: int, *, started: bool) -> sql.Composed:
        """Answer the keys of those that none of the transactions `rs_over` wrote, and who did, in key order."""
        return sql.SQL(
            "select {xid}, {texts} from {table} where {rows} and {xid} <> all (%(rs_over)s::pg_catalog.int8[])\n"
            "order by {sorted}"
        ).format(
            xid=sql.SQL(_XID),
            texts=self._key_texts(),
            table=self.table.identifier,
            rows=self._since(low, started=started),
            sorted=self._sorted(),
        )

    def _since(self, low: int, *, started: bool) -> sql.Composed:
        return sql.SQL(" and ").join([*self._page(started=started), since(low)])


class Scan:
    """Go over the table once, a page a call, and tell rows that came since a snapshot from rows written since.

    A transaction's rows are all in the snapshot or none is: of each that wrote in a page one row is asked for, and only
    rows of those that were not over by then are looked at one by one. `doubtful` counts the rows among these that were
    there, and so may have been done before they were written again; `ended` says that nothing is left to look at.
    """

    def __init__(
        self,
        held: BatchConnection,
        statements: Statements,
        params: Mapping[str, Any],
        upper: Sequence[str] | None,
        snapshot: EndSnapshot,
    ) -> None:
        self._held = held
        self._statements = WrittenStatements(
            table=statements.table,
            where=statements.where,
            bound_params=statements.bound_params,
            bounded=statements.bounded,
            also=statements.also,
        )
        self._params = dict(params)
        self._pages = PageFinder(held, statements, params, upper, most_ahead=0)
        self._snapshot = snapshot
        self._at = Position()
        self.doubtful = 0

    @property
    def ended(self) -> bool:
        """Whether the table is gone over, or its snapshot lost."""
        return self._at.ended or self._snapshot.is_lost

    def next(self) -> list[Key]:
        """Answer the keys of the next page's rows that the snapshot does not have; none where that is lost."""
        try:
            with self._held.transaction():
                page = self._pages.find(self._at, PAGE_KEYS)
                rows = [] if page is None else self._written(page)
                known = self._snapshot.versions([key for key, _ in rows]) if rows else {}
        except psycopg.Error:
            if not self._snapshot.is_broken:
                raise
            self._snapshot.give_up()
            return []
        self._at = self._at.finished() if page is None else replace(self._at, cursor=page.to)
        self.doubtful += sum(known.get(key, xid) != xid for key, xid in rows)
        return [key for key, _ in rows if key not in known]

    def _written(self, page: Page) -> list[tuple[Key, int]]:
        """Answer the rows of a page that were written by transactions which the snapshot does not see, and by which."""
        started, low, snapshot = self._at.cursor is not None, self._snapshot.low, self._snapshot
        values = {**self._params, **cursor_values("c", self._at.cursor), **cursor_values("u", page.to)}
        writers = dict(self._asked(self._statements.writers(low, started=started), values))
        asked = {xid: key for xid, key in writers.items() if not snapshot.is_later(xid)}
        known = snapshot.versions(list(asked.values())) if asked else {}
        over = [xid for xid, key in asked.items() if known.get(key) == xid]
        if len(over) == len(writers):
            return []
        found = self._asked(self._statements.written(low, started=started), {**values, "rs_over": over})
        return [(key, xid) for xid, key in found]

    def _asked(self, statement: sql.Composed, values: Mapping[str, Any]) -> list[tuple[int, Key]]:
        return [(xid, tuple(key)) for xid, *key in run(self._held.connection, statement, values).fetchall()]
