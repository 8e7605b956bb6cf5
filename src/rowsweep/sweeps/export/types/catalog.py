"""The type of every column of a table, as the catalog has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection, sql

from rowsweep.sweeps.keyset.cursor import PlainCursor

# A domain hands on to its base and an array to its element, until neither is left. The vectors of the catalog
# (int2vector) subscript like arrays and are none: their element's array is another type.
_TYPES: Final = """
    with recursive walk as (
      select a.attnum, a.atttypid as type, a.atttypmod as typmod, 0 as depth, 0 as lists
        from pg_catalog.pg_attribute a
       where a.attrelid = pg_catalog.to_regclass(%(name)s)::pg_catalog.oid and a.attnum > 0 and not a.attisdropped
      union all
      select w.attnum, case when t.typtype = 'd' then t.typbasetype else t.typelem end,
             case when t.typtype = 'd' then t.typtypmod else w.typmod end, w.depth + 1,
             w.lists + case when t.typtype = 'd' then 0 else 1 end
        from walk w join pg_catalog.pg_type t on t.oid = w.type
       where t.typtype = 'd' or exists (select from pg_catalog.pg_type e where e.oid = t.typelem and e.typarray = t.oid)
    )
    select distinct on (w.attnum) a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
           dn.nspname, d.typname, n.nspname, t.typname, w.typmod, w.lists
      from walk w
      join pg_catalog.pg_attribute a on a.attnum = w.attnum
       and a.attrelid = pg_catalog.to_regclass(%(name)s)::pg_catalog.oid
      join pg_catalog.pg_type d on d.oid = a.atttypid join pg_catalog.pg_namespace dn on dn.oid = d.typnamespace
      join pg_catalog.pg_type t on t.oid = w.type join pg_catalog.pg_namespace n on n.oid = t.typnamespace
     order by w.attnum, w.depth desc"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogType:
    """A column's type: as it was declared, and what is left without domains and arrays.

    `text` is the declared type as Postgres prints it, `declared` its qualified name; `schema`, `name` and `typmod` are
    those of the innermost element; `lists` counts the arrays around it (more than one where domains nest them).
    """

    text: str
    declared: str
    schema: str
    name: str
    typmod: int
    lists: int = 0

    @property
    def built_in(self) -> str | None:
        """The name of the innermost type where it is Postgres's own."""
        return self.name if self.schema == "pg_catalog" else None

    def is_same(self, other: CatalogType) -> bool:
        """Say whether both are one type; how it prints depends on the search path."""
        mine = (self.declared, self.schema, self.name, self.typmod, self.lists)
        return mine == (other.declared, other.schema, other.name, other.typmod, other.lists)


def column_types(connection: Connection[Any], schema: str, table: str) -> dict[str, CatalogType]:
    """Answer the types of a table's columns in their order; empty where there is no such table."""
    name = sql.Identifier(schema, table).as_string(connection)
    return {
        row[0]: CatalogType(
            text=row[1], declared=f"{row[2]}.{row[3]}", schema=row[4], name=row[5], typmod=row[6], lists=row[7]
        )
        for row in PlainCursor(connection).execute(_TYPES, {"name": name}).fetchall()
    }
