"""Rows that a run set aside are none of its second look's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from psycopg import sql

from rowsweep.sweeps.keyset.catalog import quoted

if TYPE_CHECKING:
    from rowsweep.queue.stores.rejected import RejectedRow
    from rowsweep.sweeps.keyset.catalog import Table


def not_set_aside(table: Table, rows: Sequence[RejectedRow]) -> sql.Composed:
    """Ask of a row whether it is none of these."""
    keys = sql.SQL(", ").join(sql.SQL("{}::pg_catalog.text").format(quoted(table.name, name)) for name in table.key)
    lists = sql.SQL(", ").join(
        sql.SQL("pg_catalog.unnest({}::pg_catalog.text[])").format(_literal([row.key[name] for row in rows]))
        for name in table.key
    )
    names = sql.SQL(", ").join(sql.SQL(f"rs_k{at}") for at in range(len(table.key)))
    return sql.SQL("({}) not in (select {} from rows from ({}) rs_aside ({}))").format(keys, names, lists, names)


def _literal(texts: list[str]) -> sql.SQL:
    """Write texts into a statement that binds values: there a `%` is doubled."""
    return sql.SQL(sql.Literal(texts).as_string(None).replace("%", "%%"))
