"""Give the columns of csv and ndjson parts the types that were exported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


def readable(schema: pa.Schema) -> pa.Schema:
    """Answer the schema as polars can hold it: decimals of more than 38 digits are their text."""
    import pyarrow as pa

    return pa.schema([field.with_type(_readable(field.type)) for field in schema])


def scan_texts(form: str, sources: Any, schema: pa.Schema) -> pl.LazyFrame:
    """Scan csv or ndjson, every value as its text, and restore each column from that."""
    import polars as pl
    import pyarrow as pa

    listed = pl.List(pl.String) if form == "ndjson" else pl.String()
    texts = {field.name: listed if pa.types.is_list(field.type) else pl.String() for field in schema}
    if form == "csv":
        # The header is passed over: polars would take a quote in a name as it is written, doubled.
        scanned = pl.scan_csv(sources, schema=texts, has_header=False, skip_rows=1)
    else:
        scanned = pl.scan_ndjson(sources, schema=texts)
    return scanned.with_columns(_restored(field, form) for field in readable(schema))


def _readable(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_list(kind):
        return pa.list_(_readable(kind.value_type))
    return pa.string() if pa.types.is_decimal256(kind) else kind


def _restored(field: pa.Field, form: str) -> pl.Expr:
    import polars as pl
    import pyarrow as pa

    column = pl.col(field.name)
    if not pa.types.is_list(field.type):
        return _scalar(column, field.type)
    listed = column if form == "ndjson" else column.str.json_decode(pl.List(pl.String))
    return listed.list.eval(_scalar(pl.element(), field.type.value_type))


def _scalar(text: pl.Expr, kind: pa.DataType) -> pl.Expr:
    import pyarrow as pa

    types = pa.types
    if types.is_boolean(kind):
        return text == "true"
    if types.is_timestamp(kind):
        form = "%Y-%m-%dT%H:%M:%S%.f" + ("Z" if kind.tz else "")
        return text.str.to_datetime(form, time_unit="us", time_zone=kind.tz)
    if types.is_date(kind):
        return text.str.to_date("%Y-%m-%d")
    if types.is_time(kind):
        return text.str.to_time("%H:%M:%S%.f")
    if types.is_binary(kind):
        return text.str.strip_prefix("\\x").str.decode("hex")
    return text if types.is_string(kind) else text.cast(_number(kind))


def _number(kind: pa.DataType) -> Any:
    import polars as pl
    import pyarrow as pa

    return cast("pl.Series", pl.from_arrow(pa.array([], kind))).dtype
