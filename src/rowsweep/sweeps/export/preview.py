"""Answer the first rows of an export as they would be written, and write nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowsweep.options import count
from rowsweep.sweeps.export.reading import PartReader, ReadSize
from rowsweep.sweeps.export.types.decode import decode
from rowsweep.sweeps.export.types.schema import describe
from rowsweep.sweeps.keyset.cursor import run
from rowsweep.sweeps.run import host
from rowsweep.sweeps.setup import check_rows, statements_for

if TYPE_CHECKING:
    import polars as pl

    from rowsweep.sweeps.export.declare import Export


def preview(export: Export[Any], n: int, value: Any) -> pl.DataFrame:
    """Read the first n matching rows the way an export reads them."""
    import polars as pl
    import pyarrow as pa

    limit = count(n, option="n", minimum=1, maximum=100_000)
    spec = export.spec
    parsed, _ = export.options.input.dump(value)
    held = export.held_on(host(), None, export.tenant_for(parsed))
    try:
        with held.transaction(reads=True):
            table = check_rows(held.connection, spec.rows)
            schema = describe(held.connection, table, spec.columns_of(table), as_text=spec.as_text)
            params = spec.rows.params_form or {}
            first = statements_for(table, spec.rows, bounded=False).first_matching()
            found = run(held.connection, first, {**params, "rs_limit": limit}).fetchone()
        if found is None:
            return pl.DataFrame(decode(b"", schema))
        statements = statements_for(table, spec.rows, bounded=True)
        reader = PartReader(held=held, statements=statements, schema=schema, params=params, size=ReadSize(limit))
        with reader.batches(None, tuple(found)) as batches:
            return pl.DataFrame(pa.Table.from_batches(batches, schema=schema.arrow))
    finally:
        held.release()
