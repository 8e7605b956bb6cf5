"""Columns that travel as text and are none: bytes in hex digits, arrays as JSON of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowsweep.sweeps.export.types.wire import read_column

if TYPE_CHECKING:
    import pyarrow as pa


class Unholdable(Exception):
    """A value has no place in its column's type."""


def finished(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Turn a column as it was read into its type.

    Raises Unholdable for an array of more than one dimension, ArrowInvalid for an element that the type cannot hold.
    """
    import pyarrow as pa

    if pa.types.is_list(kind):
        return _as_lists(column, kind.value_type)
    if pa.types.is_binary(kind):
        return _as_bytes(column)
    return column if column.type == kind else column.cast(kind)


def _as_bytes(texts: pa.Array) -> pa.Array:
    import polars as pl
    import pyarrow as pa

    return pl.Series(texts, dtype=pl.String).str.decode("hex").to_arrow().cast(pa.binary())


def _as_lists(texts: pa.Array, inner: pa.DataType) -> pa.Array:
    import polars as pl
    import pyarrow as pa

    series = pl.Series(texts, dtype=pl.String)
    # An element is a text or null, so a bracket behind the first is an inner array.
    if series.str.starts_with("[[").any():
        msg = "an array of more than one dimension"
        raise Unholdable(msg)
    lists = series.str.json_decode(pl.List(pl.String)).to_arrow().cast(pa.list_(pa.string()))
    return pa.ListArray.from_arrays(
        lists.offsets, _as_elements(lists.values, inner), type=pa.list_(inner), mask=lists.is_null()
    )


def _as_elements(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa
    from pyarrow import compute as pc

    if pa.types.is_binary(kind):
        return _as_bytes(pc.utf8_slice_codeunits(texts, 2))
    return read_column(texts, kind) if pa.types.is_time(kind) else texts.cast(kind)
