"""Whether a table is still the one that a sweep began with, and its key still in the same order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection, sql

from rowsweep.errors import ChangedSinceApplied
from rowsweep.sweeps.keyset.catalog import Column, Table, columns_of
from rowsweep.sweeps.keyset.cursor import PlainCursor

_OID: Final = "select pg_catalog.to_regclass(%(name)s)::pg_catalog.oid"
_MAY_ASK: Final = "select pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'execute')"
_SYSTEM: Final = "select s.system_identifier::pg_catalog.text from pg_catalog.pg_control_system() s"
_HAS_CHILDREN: Final = """
    select exists (select from pg_catalog.pg_inherits i join pg_catalog.pg_class c on c.oid = i.inhparent
                    where c.oid = %(oid)s and c.relkind = 'r')"""
# Types of one family keep the order of what was converted from one to the other.
_FAMILIES: Final = {
    **dict.fromkeys(("int2", "int4", "int8", "numeric"), "number"),
    **dict.fromkeys(("text", "varchar"), "text"),
    **dict.fromkeys(("date", "timestamp", "timestamptz"), "instant"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which table a name means: by its number, and by the cluster that it is in, None where that may not be asked."""

    oid: int
    system: str | None

    def is_another_than(self, began: Identity) -> bool:
        """Say whether it is surely another table; a copy in another cluster, as after an upgrade, may be the same."""
        return self.system == began.system and self.oid != began.oid


def identity_of(connection: Connection[Any], table: Table) -> Identity | None:
    """Answer which table the name means now; None where there is none."""
    cursor = PlainCursor(connection)
    name = sql.Identifier(table.schema, table.name).as_string(connection)
    oid = _one(cursor.execute(_OID, {"name": name}))
    if oid is None:
        return None
    system = _one(cursor.execute(_SYSTEM)) if _one(cursor.execute(_MAY_ASK)) else None
    return Identity(oid=int(oid), system=system)


def check_same(connection: Connection[Any], table: Table, began: Identity | None) -> None:
    """Refuse to call a sweep done whose table was replaced or got children, or whose key was put into another order.

    A cursor says nothing of rows that are behind it only now. Raises ChangedSinceApplied.
    """
    now = identity_of(connection, table)
    if now is None:
        return
    if began is not None and now.is_another_than(began):
        raise _changed(table, "is another table than the one that the sweep began with: its name was given to another")
    if _one(PlainCursor(connection).execute(_HAS_CHILDREN, {"oid": now.oid})):
        raise _changed(table, "has inheritance children that it had not when the sweep began")
    columns = {column.name: column for column in columns_of(PlainCursor(connection), now.oid)}
    for column in table.key_types:
        found = columns.get(column.name)
        if found is not None and _order(found) != _order(column):
            what = (
                f"was {_shown(column)} when the sweep began and is {_shown(found)} now: its keys are in another order"
            )
            raise _changed(table, f"has a key whose column {column.name!r} {what}")


def _order(column: Column) -> tuple[Any, ...]:
    is_own = column.base_schema != "pg_catalog"
    family = (column.base_schema, column.base_name) if is_own else _FAMILIES.get(column.base_name, column.base_name)
    return family, column.collation_schema, column.collation_name


def _shown(column: Column) -> str:
    collation = "" if column.collation_name is None else f" collate {column.collation_name}"
    return f"{column.type_text}{collation}"


def _changed(table: Table, why: str) -> ChangedSinceApplied:
    return ChangedSinceApplied(
        f"{table.qualified} {why}, so rows of it may not have been swept.",
        fix="launch the sweep anew: it begins at the first key",
        meta={"table": table.qualified},
    )


def _one(cursor: Any) -> Any:
    row = cursor.fetchone()
    assert row is not None  # noqa: S101 - each of these answers one row
    return row[0]
