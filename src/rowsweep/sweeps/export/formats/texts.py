"""The text of every value of a column, and lines put together from such columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

_SLICE_ROWS: Final = 16_384
_SLICE_BYTES: Final = 64 << 20


def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch, so that no column of lines outgrows memory."""
    row_bytes = max(batch.nbytes // max(batch.num_rows, 1), 1)
    step = max(min(_SLICE_ROWS, _SLICE_BYTES // row_bytes), 1)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def plain_text(column: pa.Array) -> pa.Array:
    """Answer the text of each value that is no text itself; nulls stay.

    Instants are ISO 8601, UTC with a Z; numbers have all their digits, and the names `NaN`, `Infinity`, `-Infinity`;
    bytes are `\\x` and hex digits, as Postgres writes and reads them.
    """
    import pyarrow as pa

    types, kind = pa.types, column.type
    if types.is_timestamp(kind):
        return _instants(column)
    if types.is_floating(kind):
        return _reals(column)
    if types.is_decimal(kind):
        return _decimals(column)
    return _hex(column) if types.is_binary(kind) else column.cast(pa.string())


def joined(parts: list[pa.Array], separator: str, line_end: str) -> memoryview:
    """Put columns of texts without nulls together into the bytes of one line a row."""
    from pyarrow import compute as pc

    rows = pc.binary_join_element_wise(*parts[:-1], pc.binary_join_element_wise(parts[-1], line_end, ""), separator)
    _, offsets, data = rows.buffers()
    ends = memoryview(offsets).cast("i")
    return memoryview(data)[ends[rows.offset] : ends[rows.offset + len(rows)]]


def _instants(column: pa.Array) -> pa.Array:
    """Write an instant without its zone, which is UTC: Arrow would look a zone up for every value."""
    import pyarrow as pa
    from pyarrow import compute as pc

    texts = pc.binary_replace_slice(column.cast(pa.timestamp("us")).cast(pa.string()), 10, 11, "T")
    return pc.binary_join_element_wise(texts, "Z", "") if column.type.tz else texts


def _reals(column: pa.Array) -> pa.Array:
    import pyarrow as pa
    from pyarrow import compute as pc

    texts = column.cast(pa.string())
    if pc.all(pc.is_finite(column)).as_py() is not False:
        return texts
    for arrow, ours in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        texts = pc.if_else(pc.equal(texts, arrow), ours, texts)
    return texts


def _decimals(column: pa.Array) -> pa.Array:
    """Write a decimal without an exponent, which Arrow gives to small ones."""
    import pyarrow as pa
    from pyarrow import compute as pc

    texts = column.cast(pa.string())
    small = pc.fill_null(pc.match_substring(texts, "E"), fill_value=False)
    if not pc.any(small).as_py():
        return texts
    plain = pa.array([format(value, "f") for value in column.filter(small).to_pylist()], pa.string())
    return pc.replace_with_mask(texts, small, plain)


def _hex(column: pa.Array) -> pa.Array:
    import polars as pl
    import pyarrow as pa
    from pyarrow import compute as pc

    digits = pl.Series(column, dtype=pl.Binary).bin.encode("hex").to_arrow().cast(pa.string())
    return pc.binary_join_element_wise("\\x", digits, "")
