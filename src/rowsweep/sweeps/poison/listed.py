"""Pages of rows that are named by their keys, one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from psycopg import sql

from rowsweep.sweeps.batch.pages import Page, PageFinder
from rowsweep.sweeps.keyset.catalog import quoted
from rowsweep.sweeps.keyset.cursor import run
from rowsweep.sweeps.keyset.expressions import cursor_values, key_casts, unlike
from rowsweep.sweeps.keyset.statements import Statements

if TYPE_CHECKING:
    from rowsweep.sweeps.batch.connection import BatchConnection
    from rowsweep.sweeps.passes.position import Position

Key: TypeAlias = tuple[str, ...]


class ListedStatements(Statements):
    """The statements of a sweep over pages whose keys are bound as `rs_k0…`, a list of texts for each key column."""

    __slots__ = ()

    def _between(self, *, started: bool, alias: str | None = None) -> list[sql.Composable]:  # noqa: ARG002 - a list has no start
        names = [sql.Identifier(f"rs_k{at}") for at in range(len(self.table.key))]
        form = "pg_catalog.unnest({}::pg_catalog.text[])"
        lists = [sql.SQL(form).format(sql.Placeholder(f"rs_k{at}")) for at in range(len(names))]
        return [
            sql.SQL("({}) in (select {} from rows from ({}) rs_listed ({}))").format(
                self._key(alias=alias),
                sql.SQL(", ").join(key_casts(self.table, names)),
                sql.SQL(", ").join(lists),
                sql.SQL(", ").join(names),
            )
        ]

    def _beside(self) -> sql.Composable:
        names = [sql.Identifier(f"rs_k{at}") for at in range(len(self.table.key))]
        form = "pg_catalog.unnest({}::pg_catalog.text[])"
        return sql.SQL("(select distinct {} from rows from ({}) rs_texts ({})) rs_listed ({})").format(
            sql.SQL(", ").join(key_casts(self.table, names)),
            sql.SQL(", ").join(sql.SQL(form).format(sql.Placeholder(f"rs_k{at}")) for at in range(len(names))),
            sql.SQL(", ").join(names),
            sql.SQL(", ").join(self._listed()),
        )

    def _page(self, *, started: bool) -> list[sql.Composable]:  # noqa: ARG002
        """Join the list, and ask the condition of what is joined alone.

        By itself it may be asked of every row of the table, and fail for one that is not in the list: those that are
        would be blamed for it.
        """
        same = sql.SQL("({}) = ({})").format(
            self._key(alias=self.table.name), sql.SQL(", ").join(self._listed("rs_listed"))
        )
        if self.where is None and self.also is None:
            return [same]
        return [same, sql.SQL("case when {} then {} else false end").format(same, self._matches())]

    def _listed(self, *alias: str) -> list[sql.SQL]:
        """Name the list's columns as no column of the table is named."""
        taken = [column.name for column in self.table.columns]
        return [quoted(*alias, unlike(f"rs_k{at}", taken)) for at in range(len(self.table.key))]


def listed(statements: Statements) -> ListedStatements:
    """Answer the same sweep's statements over listed keys."""
    return ListedStatements(
        table=statements.table,
        where=statements.where,
        bound_params=statements.bound_params,
        bounded=False,
        also=statements.also,
    )


class ListedFinder(PageFinder):
    """Find pages of listed keys, in the order of the list; a cursor is a key of the list, or one before it."""

    def __init__(
        self, held: BatchConnection, statements: ListedStatements, params: Mapping[str, Any], keys: Sequence[Key]
    ) -> None:
        super().__init__(held, statements, params, None)
        self.take(keys)

    @classmethod
    def beside(cls, finder: PageFinder) -> ListedFinder:
        """Make one over another's connection, sweep and parameters; it has no keys yet."""
        return cls(finder.held, listed(finder.statements), finder._params, [])

    def take(self, keys: Sequence[Key], to: Key | None = None) -> None:
        """Go by these keys from now on; the last page ends at `to` where that is given."""
        self._keys = list(keys)
        self._end = to
        self._places = {key: place for place, key in enumerate(self._keys)}

    def find(self, at: Position, limit: int) -> Page | None:
        """Answer the next page of the list, None at its end."""
        start = self._behind(at.cursor)
        part = self._keys[start : start + limit]
        if not part:
            return None
        is_last = start + limit >= len(self._keys)
        self._to = part[-1] if self._end is None or not is_last else self._end
        return Page(is_full=not is_last, to=self._to)

    def page_values(self, at: Position, to: Sequence[str]) -> dict[str, Any]:
        """Bind the keys of a page and the application's parameters."""
        part = self.between(at.cursor, tuple(to))
        columns = range(len(self.statements.table.key))
        return {**self._params, **{f"rs_k{column}": [key[column] for key in part] for column in columns}}

    def between(self, after: Key | None, to: Key) -> list[Key]:
        """Answer the keys of a page by its bounds."""
        last = self._places.get(to, len(self._keys) - 1)
        return self._keys[self._behind(after) : last + 1]

    def _behind(self, cursor: Key | None) -> int:
        return 0 if cursor is None else self._places.get(cursor, -1) + 1


def keys_of(finder: PageFinder, at: Position, page: Page) -> list[Key]:
    """Answer the keys of a page, whatever the sweep's condition says of their rows."""
    if isinstance(finder, ListedFinder):
        return finder.between(at.cursor, page.to)
    columns = [sql.SQL("{}::pg_catalog.text").format(quoted(name)) for name in finder.statements.table.key]
    statement = finder.statements.read(columns, started=at.cursor is not None, lock=False, matching=False)
    values = {**cursor_values("c", at.cursor), **cursor_values("u", page.to)}
    return [tuple(row) for row in run(finder.held.connection, statement, values).fetchall()]
