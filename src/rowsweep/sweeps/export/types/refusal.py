"""The refusal of a value that an export's schema cannot hold: which column, in the row of which key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowsweep.errors import InvalidFrame
from rowsweep.sweeps.export.types.values import Unholdable, finished
from rowsweep.sweeps.export.types.wire import read_column, wire_type
from rowsweep.sweeps.refusals import shown_value

if TYPE_CHECKING:
    import pyarrow as pa

    from rowsweep.sweeps.export.types.schema import ExportSchema, Field


def refusal(schema: ExportSchema, texts: list[pa.Array], why: str) -> InvalidFrame:
    """Find the first value, column by column, that does not decode by itself, and answer the error that names it.

    `texts` are the columns of the rows, each as the text that travelled.
    """
    for field, column in zip(schema.fields, texts, strict=True):
        at = _first_refused(column, field.arrow)
        if at is not None:
            return _no_place(schema, texts, field, at)
    return InvalidFrame(f"The rows cannot be decoded: {why:.300}", fix="report it with the table's columns", meta={})


def _first_refused(column: pa.Array, kind: pa.DataType) -> int | None:
    """Halve the column until one value is left; None where all decode."""
    if _decodes(column, kind):
        return None
    low, count = 0, len(column)
    while count > 1:
        half = count // 2
        if _decodes(column.slice(low, half), kind):
            low, count = low + half, count - half
        else:
            count = half
    return low


def _decodes(texts: pa.Array, kind: pa.DataType) -> bool:
    import pyarrow as pa

    wire = wire_type(kind)
    try:
        finished(texts if pa.types.is_string(wire) else read_column(texts, wire), kind)
    except (pa.ArrowInvalid, Unholdable):
        return False
    return True


def _no_place(schema: ExportSchema, texts: list[pa.Array], field: Field, at: int) -> InvalidFrame:
    names = [one.name for one in schema.fields]
    row = {name: column[at].as_py() for name, column in zip(names, texts, strict=True)}
    shown = ", ".join(f"{name}={row[name]}" for name in schema.key if name in row)
    return InvalidFrame(
        f"Column {field.name!r} ({field.type.text}) holds {shown_value(row[field.name])} in the row {shown:.200}, "
        f"which {field.arrow} cannot hold.",
        fix=f"as_text=[{field.name!r}] exports the column as its text; or leave it out of Rows(columns=…)",
        meta={"column": field.name, "key": shown, "type": str(field.arrow)},
    )
