"""Partitions that were attached while a sweep ran: rows that no transaction wrote meanwhile came with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from rowsweep.sweeps.keyset.catalog import quoted
from rowsweep.sweeps.keyset.cursor import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rowsweep.sweeps.keyset.statements import Statements

# What attaches a partition writes its row of pg_inherits anew. The path from the swept table down to one is as young as
# the youngest row on it.
_ATTACHED: Final = """
    with recursive tree as (
      select c.oid, null::pg_catalog.xid as by from pg_catalog.pg_class c
       where c.oid = pg_catalog.to_regclass(%(table)s)::pg_catalog.oid and c.relkind = 'p'
      union all
      select i.inhrelid, case when pg_catalog.age(i.xmin) > pg_catalog.age(t.by) then t.by else i.xmin end
        from tree t join pg_catalog.pg_inherits i on i.inhparent = t.oid
    )
    select n.nspname, c.relname, t.by::pg_catalog.text
      from tree t
      join pg_catalog.pg_class c on c.oid = t.oid and c.relkind = 'r'
      join pg_catalog.pg_namespace n on n.oid = c.relnamespace
     where pg_catalog.age(t.by) <= pg_catalog.age(%(began)s::pg_catalog.xid)
     order by 1, 2"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedRows:
    """The rows of one attached partition that were there when it was, and that nobody has written or locked since.

    A batch that did a row in its own transaction did either. Of a sweep that acts elsewhere nothing tells.
    """

    statements: Statements
    schema: str
    name: str
    by: int

    def matching(self) -> sql.Composed:
        """Select them, for a count."""
        partition = sql.SQL("{} as {}").format(quoted(self.schema, self.name), quoted(self.statements.table.name))
        there = sql.SQL("pg_catalog.age(xmin) >= pg_catalog.age({}::pg_catalog.xid) and xmax = 0")
        return sql.SQL("{} and {}").format(self.statements.matching(partition), there.format(sql.Literal(str(self.by))))


def find_attached(connection: Any, statements: Statements, *, began: int) -> Iterator[AttachedRows]:
    """Find the partitions that were attached by a transaction with this id or a later one."""
    table = sql.Identifier(statements.table.schema, statements.table.name).as_string(connection)
    for schema, name, by in run(connection, _ATTACHED, {"table": table, "began": str(began & 0xFFFFFFFF)}).fetchall():
        yield AttachedRows(statements=statements, schema=schema, name=name, by=int(by))
