"""Rows as they travel: the text that Postgres writes for a composite value, one a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

_FEW_BYTES: Final = 1 << 20


def wire_type(kind: pa.DataType) -> pa.DataType:
    """Answer as what a column is read off its line: bytes, lists and what Arrow's CSV reader lacks as text."""
    import pyarrow as pa

    types = pa.types
    return pa.string() if types.is_list(kind) or types.is_binary(kind) or types.is_decimal256(kind) else kind


def read_rows(data: bytes | memoryview, types: list[pa.DataType]) -> list[pa.Array]:
    """Read lines of `(,a,b,)`: CSV but for the parentheses, which are a first and a last column to be left out.

    A null is an empty field, the empty text is quoted; behind a backslash any character stands for itself. Raises
    ArrowInvalid for a text that its type cannot hold.
    """
    import pyarrow as pa
    from pyarrow import csv

    if not len(data):
        return [pa.array([], kind) for kind in types]
    names = [str(at) for at in range(len(types))]
    table = csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(
            column_names=["(", *names, ")"], use_threads=False, block_size=max(len(data) + 1, _FEW_BYTES)
        ),
        parse_options=csv.ParseOptions(escape_char="\\", newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict(zip(names, types, strict=True)),
            include_columns=names,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        ),
    ).combine_chunks()
    return [column.chunk(0) for column in table.columns]


def read_column(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Read texts that came another way, of a type whose texts hold no comma, quote or line's end."""
    lines = "".join(f"(,{'' if text is None else text},)\n" for text in texts.to_pylist())
    return read_rows(lines.encode(), [kind])[0]
