"""What the catalog says of a swept table: its columns, and which key can carry a sweep."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from psycopg import Connection, sql

from rowsweep.errors import InvalidKey, UnknownSource, nearest
from rowsweep.sweeps.keyset.cursor import PlainCursor
from rowsweep.sweeps.keyset.rows import Rows

_TABLE: Final = """
    select c.oid, n.nspname, c.relname, c.relkind::text,
           c.relkind = 'r' and exists (select from pg_catalog.pg_inherits i where i.inhparent = c.oid)
      from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
     where c.oid = pg_catalog.to_regclass(%(name)s)::pg_catalog.oid"""
_TABLES: Final = """
    select n.nspname, c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
     where c.relkind in ('r', 'p', 'v', 'm', 'f') and c.relpersistence <> 't'
       and n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast')
     order by pg_catalog.pg_table_is_visible(c.oid) desc, 1, 2 limit 2000"""
_COLUMNS: Final = """
    select a.attname, tn.nspname, t.typname, t.typtype::text, t.typcategory::text,
           pg_catalog.format_type(a.atttypid, a.atttypmod), a.atttypmod, a.attnotnull,
           a.attgenerated <> '' or a.attidentity = 'a',
           (b.typtype = 'e' or b.typnamespace = 'pg_catalog'::pg_catalog.regnamespace and b.typname in (
               'bool', 'int2', 'int4', 'int8', 'oid', 'text', 'varchar', 'name', 'bytea', 'uuid', 'date', 'time',
               'timestamp', 'timestamptz', 'jsonb'))
           and coalesce(l.collisdeterministic, true),
           en.nspname, et.typname, cn.nspname, c.typname, ln.nspname, l.collname,
           array(select m.attname::text from pg_catalog.pg_attrdef d
                   join pg_catalog.pg_depend p on p.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass
                    and p.objid = d.oid and p.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
                    and p.refobjid = d.adrelid and p.refobjsubid <> d.adnum
                   join pg_catalog.pg_attribute m on m.attrelid = d.adrelid and m.attnum = p.refobjsubid
                  where a.attgenerated <> '' and d.adrelid = a.attrelid and d.adnum = a.attnum)
      from pg_catalog.pg_attribute a
      join pg_catalog.pg_type t on t.oid = a.atttypid
      join pg_catalog.pg_namespace tn on tn.oid = t.typnamespace
      left join pg_catalog.pg_type et on et.oid = t.typelem and t.typcategory = 'A'
      left join pg_catalog.pg_namespace en on en.oid = et.typnamespace
      left join pg_catalog.pg_collation l on l.oid = a.attcollation and l.collname <> 'default'
      left join pg_catalog.pg_namespace ln on ln.oid = l.collnamespace
      cross join lateral (
        with recursive base as (
          select t.oid, t.typtype, t.typbasetype
          union all
          select x.oid, x.typtype, x.typbasetype from base d join pg_catalog.pg_type x on x.oid = d.typbasetype
           where d.typtype = 'd')
        select base.oid from base where base.typtype <> 'd') u
      join pg_catalog.pg_type c on c.oid = u.oid
      join pg_catalog.pg_namespace cn on cn.oid = c.typnamespace
      join pg_catalog.pg_type b on b.oid = coalesce(et.oid, c.oid)
     where a.attrelid = %(table)s and a.attnum > 0 and not a.attisdropped order by a.attnum"""
_KEYS: Final = """
    select i.indexrelid::pg_catalog.regclass::text, i.indisprimary,
           array(select a.attname::text from pg_catalog.generate_series(0, i.indnkeyatts - 1) k
                   join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[k] order by k),
           i.indisvalid, i.indimmediate, i.indpred is null, i.indexprs is null,
           not exists (select from pg_catalog.generate_series(0, i.indnkeyatts - 1) k
                        where i.indoption[k] & 1 <> i.indoption[0] & 1),
           not exists (select from pg_catalog.generate_series(0, i.indnkeyatts - 1) k
                         join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[k]
                        where not a.attnotnull),
           not exists (select from pg_catalog.generate_series(0, i.indnkeyatts - 1) k
                         join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[k]
                         join pg_catalog.pg_opclass o on o.oid = i.indclass[k]
                        where a.attcollation <> i.indcollation[k] or not o.opcdefault),
           not exists (select from pg_catalog.generate_series(0, i.indnkeyatts - 1) k
                         join pg_catalog.pg_opclass o on o.oid = i.indclass[k]
                         join pg_catalog.pg_amop p on p.amopfamily = o.opcfamily and p.amoplefttype = o.opcintype
                          and p.amoprighttype = o.opcintype
                        where not pg_catalog.pg_operator_is_visible(p.amopopr))
      from pg_catalog.pg_index i join pg_catalog.pg_class c on c.oid = i.indexrelid
      join pg_catalog.pg_am m on m.oid = c.relam
     where i.indrelid = %(table)s and i.indisunique and m.amname = 'btree' order by i.indisprimary desc, 1"""
_WHY_UNUSABLE: Final = (
    "it is not valid (a CREATE INDEX CONCURRENTLY that failed)",
    "it is deferrable: uniqueness is checked late",
    "it is partial: rows outside it would be skipped",
    "it is on an expression",
    "its columns are ordered in different directions",
    _MAY_BE_NULL := "a column of it may be null",
    "it uses another collation or operator class than the column",
    _OUT_OF_REACH := "the operators of a column's type are in a schema that is not on the search_path",
)


def quoted(*parts: str) -> sql.SQL:
    """Quote a name for a statement that binds values: there a `%` in a name is doubled too."""
    return sql.SQL(sql.Identifier(*parts).as_string(None).replace("%", "%%"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its name, its type (schema, name, text with modifiers), and what may be done with it.

    `equal_is_same` says that two equal values of it are the same to everybody: not so 1.5 and 1.50, or texts that a
    collation takes for equal. `base` is a domain's base type, else the type itself. `collation` is the column's own,
    None for the database's. `made_of` are the columns that a generated one is computed from.
    """

    name: str
    type_schema: str
    type_name: str
    type_kind: str
    category: str
    type_text: str
    typmod: int
    not_null: bool
    generated: bool
    equal_is_same: bool
    base_schema: str
    base_name: str
    element_schema: str | None = None
    element_name: str | None = None
    collation_schema: str | None = None
    collation_name: str | None = None
    made_of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table that can be swept: qualified name, columns in order, and the columns of its key."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def qualified(self) -> str:
        """The name as a person reads it."""
        return f"{self.schema}.{self.name}"

    @property
    def identifier(self) -> sql.SQL:
        """The quoted, qualified name."""
        return quoted(self.schema, self.name)

    def column(self, name: str) -> Column:
        """Answer a column by name; UnknownSource with the nearest names otherwise."""
        for column in self.columns:
            if column.name == name:
                return column
        names = [column.name for column in self.columns]
        near = nearest(name, names) or names[:5]
        raise UnknownSource(
            f"The table {self.qualified} has no column {name!r} (nearest: {', '.join(map(repr, near))}).",
            fix=f"use one of {', '.join(map(repr, near))}",
            meta={"table": self.qualified, "column": name, "nearest": near},
        )

    @property
    def key_types(self) -> tuple[Column, ...]:
        """The key's columns with their types."""
        return tuple(self.column(name) for name in self.key)

    def moved_by(self, name: str) -> Column | None:
        """Answer the key's column that changes where this column does: itself, or one that is computed from it."""
        return next((column for column in self.key_types if name in (column.name, *column.made_of)), None)

    def as_json(self) -> dict[str, Any]:
        """Answer the table as it is stored by the setup step."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Table:
        """Restore a table that the setup step stored."""
        columns = tuple(
            Column(**column | {"made_of": tuple(column.get("made_of", ()))}) for column in stored["columns"]
        )
        return cls(schema=stored["schema"], name=stored["name"], columns=columns, key=tuple(stored["key"]))


def find_table(connection: Connection[Any], rows: Rows) -> Table:
    """Read the swept table off the catalog and choose its key.

    Raises UnknownSource for a missing table or column, InvalidKey for what has no usable key; both name what there is.
    """
    cursor = PlainCursor(connection)
    wanted = sql.Identifier(*rows.parts).as_string(connection)
    found = cursor.execute(_TABLE, {"name": wanted}).fetchone()
    if found is None:
        raise _unknown_table(cursor.execute(_TABLES).fetchall(), rows)
    oid, schema, name, kind, has_children = found
    qualified = f"{schema}.{name}"
    _check_kind(qualified, kind, has_children=has_children)
    columns = columns_of(cursor, oid)
    keys = cursor.execute(_KEYS, {"table": oid}).fetchall()
    bare = Table(schema=schema, name=name, columns=columns, key=())
    for column in (*(rows.columns or ()), *(rows.key_columns or ())):
        bare.column(column)
    return Table(schema=schema, name=name, columns=columns, key=_choose_key(bare, keys, rows.key_columns))


def columns_of(cursor: PlainCursor, oid: int) -> tuple[Column, ...]:
    """Read a table's columns off the catalog, in order."""
    return tuple(
        Column(
            name=row[0], type_schema=row[1], type_name=row[2], type_kind=row[3], category=row[4], type_text=row[5],
            typmod=row[6], not_null=row[7], generated=row[8], equal_is_same=row[9],
            element_schema=row[10], element_name=row[11], base_schema=row[12], base_name=row[13],
            collation_schema=row[14], collation_name=row[15], made_of=tuple(row[16]),
        )
        for row in cursor.execute(_COLUMNS, {"table": oid}).fetchall()
    )  # fmt: skip


def _check_kind(qualified: str, kind: str, *, has_children: bool) -> None:
    what = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index"}
    if kind not in ("r", "p"):
        raise InvalidKey(
            f"{qualified} is {what.get(kind, 'no table')}: it has no key whose uniqueness the catalog proves.",
            fix="sweep the table behind it, with its condition as where=",
            meta={"table": qualified, "kind": kind},
        )
    if has_children:
        raise InvalidKey(
            f"{qualified} has inheritance children: a unique index of the parent does not cover their rows.",
            fix="sweep each child table by itself",
            meta={"table": qualified},
        )


def _choose_key(table: Table, keys: list[tuple[Any, ...]], declared: tuple[str, ...] | None) -> tuple[str, ...]:
    usable = [tuple(key[2]) for key in keys if all(key[3:])]
    if declared is not None:
        if declared in usable:
            return declared
        why = next((_why(key) for key in keys if tuple(key[2]) == declared), "no unique index has just these columns")
        cause = f"The key ({', '.join(declared)}) of {table.qualified} cannot carry a sweep: {why}."
        raise _no_key(table, cause, usable, declared if why == _MAY_BE_NULL else ())
    primary = next((key for key in keys if key[1]), None)
    if primary is None:
        raise _no_key(table, f"{table.qualified} has no primary key.", usable)
    if not all(primary[3:]):
        raise _no_key(table, f"The primary key of {table.qualified} cannot carry a sweep: {_why(primary)}.", usable)
    return tuple(primary[2])


def _why(key: tuple[Any, ...]) -> str:
    return next((why for why, holds in zip(_WHY_UNUSABLE, key[3:], strict=True) if not holds), "it is usable")


def _no_key(table: Table, cause: str, usable: list[tuple[str, ...]], nullable: tuple[str, ...] = ()) -> InvalidKey:
    if _OUT_OF_REACH in cause:
        fix = 'add that schema: rs.connect("postgresql://…?options=-csearch_path%3Dpublic,…")'
    elif usable:
        fix = "name one of its keys: " + " or ".join(f"Rows(…, key={list(key)!r})" for key in usable[:3])
    elif nullable:
        names = [name for name in nullable if not table.column(name).not_null]
        alter = ", ".join(f'alter column "{name}" set not null' for name in names)
        fix = f'alter table "{table.schema}"."{table.name}" {alter}'
    else:
        column = next((c.name for c in table.columns if c.not_null), table.columns[0].name if table.columns else "id")
        quoted = f'"{table.schema}"."{table.name}"'
        fix = (
            f'alter table {quoted} alter column "{column}" set not null; '
            f'create unique index concurrently on {quoted} ("{column}") -- then Rows(…, key=[{column!r}])'
        )
    return InvalidKey(cause, fix=fix, meta={"table": table.qualified, "usable": [list(key) for key in usable]})


def _unknown_table(tables: list[tuple[Any, ...]], rows: Rows) -> UnknownSource:
    wanted = ".".join(rows.parts)
    known = [name if len(rows.parts) == 1 else f"{schema}.{name}" for schema, name in tables]
    near = nearest(wanted, known)
    shown = ", ".join(map(repr, near)) if near else "none is close"
    return UnknownSource(
        f"There is no table {wanted!r} (nearest: {shown}).",
        fix=f"Rows({near[0]!r})" if near else "check the name, its schema and the connection's search_path",
        meta={"table": wanted, "nearest": near},
    )
