"""Pages as frames: a schema fixed from the catalog, filled from CSV."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from psycopg import sql

from rowsweep.errors import InvalidFrame
from rowsweep.sweeps.keyset.catalog import Column, quoted
from rowsweep.sweeps.refusals import shown_value

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

_PLAIN: Final = {
    "bool": "bool_", "int2": "int16", "int4": "int32", "int8": "int64", "oid": "uint32",
    "float4": "float32", "float8": "float64", "text": "string", "varchar": "string", "bpchar": "string",
    "name": "string", "date": "date32",
}  # fmt: skip
_ELEMENTS: Final = {
    "bool": "Boolean", "int2": "Int16", "int4": "Int32", "int8": "Int64", "float4": "Float32", "float8": "Float64",
    "text": "String", "varchar": "String", "bpchar": "String",
}  # fmt: skip
_MOST_DIGITS: Final = 38


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnForm:
    """How one column travels: what is selected, as what Arrow reads its CSV, and what the frame shows.

    `is_bare` says that its text never holds a comma, a quote or a line's end.
    """

    name: str
    select: sql.Composable
    arrow: pa.DataType
    finish: pl.DataType | None = None
    is_bare: bool = False

    @property
    def field(self) -> sql.Composable:
        """The SQL of its CSV field: NULL is empty, text is quoted (RFC 4180)."""
        if self.is_bare:
            return sql.SQL("coalesce(({})::pg_catalog.text, '')").format(self.select)
        # concat() takes a value's own output, where a cast to text would cut a char's trailing blanks.
        quoted_text = "'\"' || pg_catalog.replace(pg_catalog.concat({0}), '\"', '\"\"') || '\"'"
        return sql.SQL(f"case when ({{0}}) is not distinct from null then '' else {quoted_text} end").format(
            self.select
        )


def csv_line(forms: Iterable[ColumnForm]) -> sql.Composable:
    """Answer the SQL of a row's CSV line."""
    return sql.SQL(" || ',' || ").join(form.field for form in forms)


def column_form(column: Column) -> ColumnForm:
    """Choose a column's form from its catalog type alone, so that a page of nulls changes nothing.

    numeric(p,s) is a decimal while p ≤ 38, timestamptz is in UTC, bytea is binary, arrays of plain types are lists;
    uuid, json, enum, any other numeric and any other type are their text.
    """
    import polars as pl
    import pyarrow as pa

    own = quoted(column.name)
    name = _catalog_name(column)
    element = column.element_name if column.element_schema == "pg_catalog" else None
    if name in _PLAIN:
        arrow = getattr(pa, _PLAIN[name])()
        return ColumnForm(name=column.name, select=own, arrow=arrow, is_bare=_PLAIN[name] != "string")
    if name in ("timestamp", "timestamptz"):
        zone = "UTC" if name == "timestamptz" else None
        return ColumnForm(name=column.name, select=own, arrow=pa.timestamp("us", zone), is_bare=True)
    if name == "time":
        return ColumnForm(name=column.name, select=own, arrow=pa.time64("us"), is_bare=True)
    if name == "numeric" and (digits := numeric_digits(column.typmod)) is not None:
        return ColumnForm(name=column.name, select=own, arrow=pa.decimal128(*digits), is_bare=True)
    if name == "bytea":
        hexed = sql.SQL("pg_catalog.encode({}, 'hex')").format(own)
        return ColumnForm(name=column.name, select=hexed, arrow=pa.string(), finish=pl.Binary())
    if column.category == "A" and element in _ELEMENTS:
        # JSON has neither NaN nor -0: a float's own text has both.
        form = (
            "pg_catalog.array_to_json({}::pg_catalog.text[])" if "float" in element else "pg_catalog.array_to_json({})"
        )
        listed = sql.SQL(form).format(own)
        inner = getattr(pl, _ELEMENTS[element])
        return ColumnForm(name=column.name, select=listed, arrow=pa.string(), finish=pl.List(inner))
    return ColumnForm(name=column.name, select=sql.SQL("{}::pg_catalog.text").format(own), arrow=pa.string())


def is_text_form(column: Column) -> bool:
    """Say whether a column travels as the text of a type that has no form of its own."""
    name = _catalog_name(column)
    plain = name in _PLAIN or name in ("timestamp", "timestamptz", "time", "bytea")
    return not plain and not (name == "numeric" and numeric_digits(column.typmod) is not None)


def numeric_digits(typmod: int) -> tuple[int, int] | None:
    """Answer (precision, scale) of a numeric's modifier where a decimal holds it, None otherwise."""
    if typmod < 4:
        return None
    precision = ((typmod - 4) >> 16) & 0xFFFF
    scale = (((typmod - 4) & 0x7FF) ^ 1024) - 1024
    return (precision, scale) if 1 <= precision <= _MOST_DIGITS and 0 <= scale <= precision else None


def read_csv(data: bytes, forms: Iterable[ColumnForm], key: tuple[str, ...]) -> pa.Table:
    """Read CSV (no header, NULL an empty unquoted field) into the fixed schema.

    Raises InvalidFrame, naming column and key, for a value that the schema cannot hold (an infinite timestamp).
    """
    import pyarrow as pa

    columns = list(forms)
    schema = pa.schema([(form.name, form.arrow) for form in columns])
    if not data:
        return schema.empty_table()
    try:
        return _parse(data, [form.name for form in columns], {form.name: form.arrow for form in columns})
    except pa.ArrowInvalid as error:
        raise _unreadable(data, columns, key, str(error)) from error


def as_frame(table: pa.Table, forms: Iterable[ColumnForm], key: tuple[str, ...]) -> pl.DataFrame:
    """Turn a page into a polars frame, bytea and arrays restored from their text.

    Raises InvalidFrame, naming column and key, for an array that no list of its type can hold.
    """
    import polars as pl

    frame = pl.DataFrame(table)
    restored = [_restored(frame, form, key) for form in forms if form.finish is not None]
    return frame.with_columns(restored) if restored else frame


def _restored(frame: pl.DataFrame, form: ColumnForm, key: tuple[str, ...]) -> pl.Series:
    import polars as pl

    texts = frame[form.name]
    if isinstance(form.finish, pl.Binary):
        return texts.str.decode("hex")
    assert form.finish is not None  # noqa: S101 - asked for those that have one
    try:
        return _decoded(texts, form.finish)
    except pl.exceptions.PolarsError as error:
        at = next(at for at in range(len(texts)) if not _decodes(texts.slice(at, 1), form.finish))
        raise _no_place(form.name, frame.row(at, named=True), key, str(form.finish)) from error


def _decoded(texts: pl.Series, form: pl.DataType) -> pl.Series:
    import polars as pl

    if isinstance(form, pl.List) and cast("pl.DataType", form.inner).is_float():
        return texts.str.json_decode(pl.List(pl.String)).cast(form)
    return texts.str.json_decode(form)


def _decodes(texts: pl.Series, form: pl.DataType) -> bool:
    import polars as pl

    try:
        _decoded(texts, form)
    except pl.exceptions.PolarsError:
        return False
    return True


def _catalog_name(column: Column) -> str:
    return column.type_name if column.type_schema == "pg_catalog" else ""


def _parse(data: bytes, names: list[str], types: dict[str, Any]) -> pa.Table:
    from pyarrow import csv

    return csv.read_csv(
        io.BytesIO(data),
        read_options=csv.ReadOptions(column_names=names, use_threads=False, block_size=max(len(data) + 1, 1 << 20)),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["true"],
            false_values=["false"],
        ),
    )


def _unreadable(data: bytes, columns: list[ColumnForm], key: tuple[str, ...], why: str) -> InvalidFrame:
    """Find the first column that does not parse by itself, and the row whose value it is."""
    import pyarrow as pa

    names = [form.name for form in columns]
    texts = _parse(data, names, dict.fromkeys(names, pa.string()))
    for form in columns:
        try:
            _parse(data, names, {name: form.arrow if name == form.name else pa.string() for name in names})
        except pa.ArrowInvalid as error:
            at = next(
                (i for i, text in enumerate(texts[form.name].to_pylist()) if text and f"'{text}'" in str(error)), 0
            )
            return _no_place(form.name, texts.slice(at, 1).to_pylist()[0], key, str(form.arrow))
    return InvalidFrame(f"The page cannot be read as a frame: {why:.300}", fix="read batch.rows instead", meta={})


# Dicts have no such date or time either.
BEYOND_PYTHON: Final = (
    "leave the column out of Rows(columns=…), or such rows out by where= (isfinite(…) tells an infinity), or correct "
    "the value; set={…} takes any"
)
_READ_DICTS: Final = "leave the column out of Rows(columns=…), read batch.rows instead, or correct the value"


def _no_place(column: str, row: dict[str, Any], key: tuple[str, ...], kind: str) -> InvalidFrame:
    shown = ", ".join(f"{name}={row[name]}" for name in key)
    return InvalidFrame(
        f"Column {column!r} holds {shown_value(row[column])} in the row {shown}, which a frame's {kind} cannot hold.",
        fix=BEYOND_PYTHON if kind.startswith(("timestamp", "date", "time")) else _READ_DICTS,
        meta={"column": column, "key": shown, "type": kind},
    )
