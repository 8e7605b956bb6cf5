"""Which Arrow type a column gets, and which SQL its text is taken from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from psycopg import sql

from rowsweep.sweeps.export.types.catalog import CatalogType
from rowsweep.sweeps.keyset.catalog import quoted

if TYPE_CHECKING:
    import pyarrow as pa

_PLAIN: Final = {
    "bool": "bool_", "int2": "int16", "int4": "int32", "int8": "int64", "oid": "uint32",
    "float4": "float32", "float8": "float64", "date": "date32", "bytea": "binary",
}  # fmt: skip
_DIGITS_OF_128: Final = 38
_DIGITS_OF_256: Final = 76
# JSON writes an element as its type does, but for numbers, instants, truth and documents, which it turns into its own.
# Cast to text each keeps its text, but for these, whose cast cuts blanks or adds a netmask.
_CAST_CHANGES: Final = frozenset({"bpchar", "inet", "cidr"})
# What people write into it may be anything; of the other built-in types none writes what a spreadsheet would run.
_FREE_TEXT: Final = frozenset({"text", "varchar", "bpchar", "name", "char", "xml"})


def arrow_type(kind: CatalogType) -> pa.DataType:
    """Choose the Arrow type: one of its own for numbers, truth, instants and bytes, a list for an array, else text."""
    import pyarrow as pa

    if kind.lists > 1:
        return pa.string()
    inner = _arrow_scalar(kind)
    return pa.list_(inner) if kind.lists else inner


def expression(name: str, kind: CatalogType) -> sql.Composable:
    """Answer the SQL whose own text travels for a column: hex digits for bytes, JSON of texts for an array."""
    column = quoted(name)
    if kind.lists == 1:
        elements = "{}" if kind.built_in in _CAST_CHANGES else "{}::pg_catalog.text[]"
        return sql.SQL(f"pg_catalog.array_to_json({elements})").format(column)
    if kind.built_in == "bytea" and not kind.lists:
        return sql.SQL("pg_catalog.encode({}, 'hex')").format(column)
    return column


def is_free_text(kind: CatalogType) -> bool:
    """Say whether a column holds what people write, where any first character may come."""
    return not kind.lists and (kind.built_in is None or kind.built_in in _FREE_TEXT)


def decimal_digits(typmod: int) -> tuple[int, int] | None:
    """Answer (precision, scale) of a numeric's modifier where a decimal holds it, None otherwise."""
    if typmod < 4:
        return None
    precision = ((typmod - 4) >> 16) & 0xFFFF
    scale = (((typmod - 4) & 0x7FF) ^ 1024) - 1024
    return (precision, scale) if 1 <= precision <= _DIGITS_OF_256 and 0 <= scale <= precision else None


def _arrow_scalar(kind: CatalogType) -> pa.DataType:
    import pyarrow as pa

    name = kind.built_in or ""
    if name in _PLAIN:
        return getattr(pa, _PLAIN[name])()
    if name in ("timestamp", "timestamptz"):
        return pa.timestamp("us", "UTC" if name == "timestamptz" else None)
    if name == "time":
        return pa.time64("us")
    if name == "numeric" and (digits := decimal_digits(kind.typmod)) is not None:
        return pa.decimal128(*digits) if digits[0] <= _DIGITS_OF_128 else pa.decimal256(*digits)
    return pa.string()
