"""Rows off the wire, decoded into Arrow with the export's types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowsweep.sweeps.export.types.refusal import refusal
from rowsweep.sweeps.export.types.values import Unholdable, finished
from rowsweep.sweeps.export.types.wire import read_rows, wire_type

if TYPE_CHECKING:
    import pyarrow as pa

    from rowsweep.sweeps.export.types.schema import ExportSchema


def decode(data: bytes | memoryview, schema: ExportSchema) -> pa.RecordBatch:
    """Decode whole rows, each `row(null, …, null)::text` and a line's end, into one record batch.

    Raises InvalidFrame, naming column and key, for a value that its column's type cannot hold: nothing is rounded, cut
    or replaced.
    """
    import pyarrow as pa

    arrow = schema.arrow
    try:
        columns = read_rows(data, [wire_type(kind) for kind in arrow.types])
        arrays = [finished(column, kind) for column, kind in zip(columns, arrow.types, strict=True)]
    except (pa.ArrowInvalid, Unholdable) as error:
        texts = read_rows(data, [pa.string()] * len(arrow.types))
        raise refusal(schema, texts, str(error)) from error
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)
