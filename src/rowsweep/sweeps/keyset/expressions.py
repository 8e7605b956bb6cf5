"""Expressions in the SQL composed for an application's table: its own text, keys bound and cast, values compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from psycopg import sql

from rowsweep.sweeps.keyset.catalog import Column, Table, quoted

_Part = sql.Composable


def expression(text: str, *, bound: bool) -> sql.SQL:
    """Take the application's own SQL as it stands; where no parameters are bound a `%` is an ordinary character."""
    return sql.SQL(text if bound else text.replace("%", "%%"))


def cursor_values(prefix: str, cursor: Iterable[str | None] | None) -> dict[str, Any]:
    """Bind a cursor's texts as `rs_<prefix>0…`."""
    return {f"rs_{prefix}{at}": text for at, text in enumerate(cursor or ())}


def key_casts(table: Table, names: Iterable[_Part]) -> list[sql.Composed]:
    """Cast texts to the types of the key's columns."""
    types = map(base_type, table.key_types)
    return [sql.SQL("{}::{}").format(name, each) for name, each in zip(names, types, strict=True)]


def unlike(name: str, taken: Iterable[str]) -> str:
    """Answer a name that none of these is."""
    while name in taken:
        name += "_"
    return name


def base_type(column: Column) -> sql.SQL:
    """Name a column's type without its modifiers, so that a cast rounds and cuts nothing.

    A domain's base: the domain may have another collation than its column.
    """
    return quoted(column.base_schema, column.base_name)


def own_form(value: _Part, column: Column) -> sql.Composed:
    """Cast a text to a column's type and collation: two values that are no columns are compared as the column's are."""
    cast = sql.SQL("{}::{}").format(value, base_type(column))
    if column.collation_schema is None or column.collation_name is None:
        return cast
    return sql.SQL("({} collate {})").format(cast, quoted(column.collation_schema, column.collation_name))


def differing(column: Column, left: _Part, right: _Part) -> sql.Composed:
    """Compare by value where equal values are the same, else by their stored image, which every type has.

    Reals go by their text: one zero may be negative, and one NaN is as good as another.
    """
    if column.equal_is_same:
        form = "{} is distinct from {}"
    elif {column.base_name, column.element_name} & {"float4", "float8"}:
        form = "{}::pg_catalog.text is distinct from {}::pg_catalog.text"
    else:
        form = "pg_catalog.record_image_ne(row({}), row({}))"
    return sql.SQL(form).format(left, right)
