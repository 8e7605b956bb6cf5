"""What the catalog says of a purged table: the column's type, an index to walk, the keys that refer to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from psycopg import sql
from psycopg.rows import tuple_row

from rowsweep.errors import InvalidDeclaration
from rowsweep.sweeps.keyset.catalog import Table

_COLUMN: Final = """
    select c.relkind = 'p',
           pg_catalog.format_type(coalesce(nullif(t.typbasetype, 0), t.oid), null)
      from pg_catalog.pg_class c
      join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attname = %(column)s
      join pg_catalog.pg_type t on t.oid = a.atttypid
     where c.oid = pg_catalog.to_regclass(%(qualified)s)"""
_INDEX: Final = """
    select x.relname
      from pg_catalog.pg_index i
      join pg_catalog.pg_class x on x.oid = i.indexrelid
      join pg_catalog.pg_am m on m.oid = x.relam
      join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
      join pg_catalog.pg_opclass o on o.oid = i.indclass[0]
     where i.indrelid = pg_catalog.to_regclass(%(qualified)s) and a.attname = %(column)s
       and m.amname = 'btree' and o.opcdefault and i.indisvalid and i.indpred is null
     order by i.indnkeyatts desc, x.relname limit 1"""
_TIES: Final = """
    select c.reltuples * greatest(
             coalesce(s.most_common_freqs[1], 0),
             case when s.n_distinct < 0 then -1 / (s.n_distinct * greatest(c.reltuples, 1)) else 1 / s.n_distinct end)
      from pg_catalog.pg_stats s
      join pg_catalog.pg_class c on c.oid = pg_catalog.to_regclass(%(qualified)s)
      join pg_catalog.pg_namespace n on n.oid = c.relnamespace
     where s.schemaname = n.nspname and s.tablename = c.relname and s.attname = %(column)s and not s.inherited
       and s.n_distinct <> 0 and c.reltuples > 0"""
_REFERENCES: Final = """
    select c.conname, n.nspname, r.relname, c.confdeltype::text, c.conrelid = c.confrelid,
           pg_catalog.has_table_privilege(c.conrelid, 'select'),
           array(select a.attname::text from unnest(c.conkey) with ordinality k (num, at)
                   join pg_catalog.pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.num order by k.at),
           array(select a.attname::text from unnest(c.confkey) with ordinality k (num, at)
                   join pg_catalog.pg_attribute a on a.attrelid = c.confrelid and a.attnum = k.num order by k.at)
      from pg_catalog.pg_constraint c
      join pg_catalog.pg_class r on r.oid = c.conrelid
      join pg_catalog.pg_namespace n on n.oid = r.relnamespace
     where c.contype = 'f'"""
_REFERRING: Final = (
    _REFERENCES + " and c.confrelid = pg_catalog.to_regclass(%(qualified)s) and c.conparentid = 0 order by 2, 3, 1"
)
_NAMED: Final = _REFERENCES + " and c.conname = %(name)s and r.relname = %(table)s and n.nspname = %(schema)s"
_MANY_TIES: Final = 2_000.0
_TYPES: Final = {
    "timestamp with time zone": "timestamptz",
    "timestamp without time zone": "timestamp",
    "date": "date",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Aged:
    """The column that rows age by: its type, whether its table is partitioned, and an index that orders by it.

    `ties` is how many rows share one value at the most, by the planner's statistics; None where there are none.
    """

    column: str
    type: str
    partitioned: bool
    index: str | None
    ties: float | None

    @property
    def has_many_ties(self) -> bool:
        """Whether a walk along the index would sort many rows of one value again for each page."""
        return self.type == "date" if self.ties is None else self.ties > _MANY_TIES

    def as_json(self) -> dict[str, Any]:
        """Answer what the setup step stores."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A foreign key that refers to a table: from which table, by which columns, and what a delete does."""

    name: str
    schema: str
    table: str
    cascades: bool
    is_own: bool
    readable: bool
    columns: tuple[str, ...]
    referred: tuple[str, ...]

    @property
    def qualified(self) -> str:
        """The referring table as a person reads it."""
        return f"{self.schema}.{self.table}"


def find_aged(connection: Any, table: Table, column: str) -> Aged:
    """Read the column that rows age by; InvalidDeclaration where it holds no instants or dates."""
    table.column(column)
    cursor = connection.cursor(row_factory=tuple_row)
    values = {"qualified": _quoted(table.schema, table.name), "column": column}
    partitioned, type_text = cursor.execute(_COLUMN, values).fetchone()
    if type_text not in _TYPES:
        raise InvalidDeclaration(
            f"The column {column!r} of {table.qualified} is {type_text}, which says no instant to age by.",
            fix="name a timestamptz, timestamp or date column",
            meta={"field": "column", "table": table.qualified, "column": column, "type": type_text},
        )
    index = cursor.execute(_INDEX, values).fetchone()
    ties = cursor.execute(_TIES, values).fetchone()
    return Aged(
        column=column,
        type=_TYPES[type_text],
        partitioned=partitioned,
        index=None if index is None else index[0],
        ties=None if ties is None else float(ties[0]),
    )


def find_references(connection: Any, schema: str, table: str) -> list[Reference]:
    """Read the foreign keys that refer to a table."""
    rows = (
        connection.cursor(row_factory=tuple_row).execute(_REFERRING, {"qualified": _quoted(schema, table)}).fetchall()
    )
    return [_reference(row) for row in rows]


def find_reference(connection: Any, schema: str, table: str, name: str) -> Reference | None:
    """Read the foreign key of this name on the referring table."""
    values = {"schema": schema, "table": table, "name": name}
    row = connection.cursor(row_factory=tuple_row).execute(_NAMED, values).fetchone()
    return None if row is None else _reference(row)


def _quoted(schema: str, table: str) -> str:
    return sql.Identifier(schema, table).as_string(None)


def _reference(row: tuple[Any, ...]) -> Reference:
    return Reference(
        name=row[0],
        schema=row[1],
        table=row[2],
        cascades=row[3] == "c",
        is_own=row[4],
        readable=row[5],
        columns=tuple(row[6]),
        referred=tuple(row[7]),
    )
