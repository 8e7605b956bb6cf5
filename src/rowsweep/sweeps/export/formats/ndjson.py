"""NDJSON: one JSON object a line, with nothing rounded."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final

from rowsweep.spelling import spelled
from rowsweep.sweeps.export.formats.texts import joined, plain_text, slices

if TYPE_CHECKING:
    import pyarrow as pa

_ESCAPED: Final = '["\\\\\x00-\x1f]'
_RARE: Final = "[\x00-\x08\x0b\x0c\x0e-\x1f]"
_COMMON: Final = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


@spelled
@dataclass(frozen=True, slots=True, kw_only=True)
class Ndjson:
    """Files of one JSON object a line, in UTF-8.

    Integers and floats are JSON numbers; decimals are strings, since readers take a number with a point for a double;
    so are NaN and the infinities.
    """

    name: ClassVar[str] = "ndjson"
    suffix: ClassVar[str] = ".ndjson"

    def as_json(self) -> dict[str, Any]:
        """Answer name and options as they are stored and compared."""
        return {"name": self.name}

    def write(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO) -> int:
        """Write a whole file, forward only, as the batches come, and answer its rows; the sink stays open."""
        names = [json.dumps(name, ensure_ascii=False) + ":" for name in schema.names]
        rows = 0
        for batch in batches:
            for piece in slices(batch):
                lines = joined(_members(names, piece.columns), "", "}\n")
                sink.write(lines)
            rows += batch.num_rows
        return rows


def _members(names: list[str], columns: list[pa.Array]) -> list[Any]:
    from pyarrow import compute as pc

    parts: list[Any] = []
    for at, (name, column) in enumerate(zip(names, columns, strict=True)):
        parts += [("," if at else "{") + name, pc.fill_null(json_texts(column), "null")]
    return parts


def json_texts(column: pa.Array) -> pa.Array:
    """Answer each value as JSON; nulls stay nulls."""
    import pyarrow as pa
    from pyarrow import compute as pc

    types, kind = pa.types, column.type
    if types.is_list(kind):
        return _lists(column)
    if types.is_string(kind):
        return _quoted(_escaped(column))
    texts = plain_text(column)
    if types.is_integer(kind) or types.is_boolean(kind):
        return texts
    if types.is_floating(kind):
        # Without a point a reader takes it for an integer, which has no negative zero.
        texts = pc.if_else(
            pc.match_substring_regex(texts, "^-?[0-9]+$"), pc.binary_join_element_wise(texts, ".0", ""), texts
        )
        finite = pc.is_finite(column)
        return texts if pc.all(finite).as_py() is not False else pc.if_else(finite, texts, _quoted(texts))
    return _quoted(pc.replace_substring(texts, "\\", "\\\\") if types.is_binary(kind) else texts)


def _lists(column: pa.Array) -> pa.Array:
    import pyarrow as pa
    from pyarrow import compute as pc

    inner = pc.fill_null(json_texts(column.flatten()), "null")
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    ends = pc.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    lists = pa.ListArray.from_arrays(offsets, inner, mask=column.is_null())
    return pc.binary_join_element_wise("[", pc.binary_join(lists, ","), "]", "")


def _escaped(texts: pa.Array) -> pa.Array:
    from pyarrow import compute as pc

    if not pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py():
        return texts
    rare = pc.fill_null(pc.match_substring_regex(texts, _RARE), fill_value=False)
    escaped = texts
    for character, escape in _COMMON:
        escaped = pc.replace_substring(escaped, character, escape)
    if not pc.any(rare).as_py():
        return escaped
    return pc.replace_with_mask(escaped, rare, _dumped(texts.filter(rare)))


def _dumped(texts: pa.Array) -> pa.Array:
    import pyarrow as pa

    return pa.array([json.dumps(text, ensure_ascii=False)[1:-1] for text in texts.to_pylist()], pa.string())


def _quoted(texts: pa.Array) -> pa.Array:
    from pyarrow import compute as pc

    return pc.binary_join_element_wise('"', texts, '"', "")
