"""CSV: RFC 4180, with NULL told from the empty text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final

from rowsweep.options import invalid_option
from rowsweep.spelling import spelled
from rowsweep.sweeps.export.formats.ndjson import json_texts
from rowsweep.sweeps.export.formats.texts import joined, plain_text, slices

if TYPE_CHECKING:
    import pyarrow as pa

_FORMULA: Final = r"^[=+\-@\t\r]"


@spelled
@dataclass(frozen=True, slots=True, kw_only=True)
class Csv:
    """CSV files in UTF-8, each with a header: NULL is an empty field, the empty text `""`; other texts are quoted too.

    `bom` begins each file with the mark that Excel wants; `crlf` ends lines as RFC 4180 does instead of with a newline.
    `guard_formulas` puts a `'` before a text that begins with `=`, `+`, `-`, `@`, a tab or a carriage return: only in
    columns of free text, whose values are no longer the table's then.
    """

    bom: bool = False
    crlf: bool = False
    guard_formulas: bool = False

    name: ClassVar[str] = "csv"
    suffix: ClassVar[str] = ".csv"

    def __post_init__(self) -> None:
        for option, value in asdict(self).items():
            if not isinstance(value, bool):
                raise invalid_option(option, "True or False", value, "True")

    def as_json(self) -> dict[str, Any]:
        """Answer name and options as they are stored and compared."""
        return {"name": self.name, **asdict(self)}

    def write(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO) -> int:
        """Write a whole file, forward only, as the batches come, and answer its rows; the sink stays open."""
        line_end = "\r\n" if self.crlf else "\n"
        guarded = [self.guard_formulas and (field.metadata or {}).get(b"free_text") == b"yes" for field in schema]
        header = ",".join(_header(name, guarded=self.guard_formulas) for name in schema.names)
        sink.write(f"{chr(0xFEFF) if self.bom else ''}{header}{line_end}".encode())
        rows = 0
        for batch in batches:
            for piece in slices(batch):
                columns = zip(piece.columns, guarded, strict=True)
                sink.write(joined([_field(column, guarded=guard) for column, guard in columns], ",", line_end))
            rows += batch.num_rows
        return rows


def _header(name: str, *, guarded: bool) -> str:
    if guarded and name.startswith(("=", "+", "-", "@", "\t", "\r")):
        name = f"'{name}"
    is_bare = name and name.strip() == name and not set(name) & set(',"\r\n')
    return name if is_bare else '"' + name.replace('"', '""') + '"'


def _field(column: pa.Array, *, guarded: bool) -> pa.Array:
    import pyarrow as pa
    from pyarrow import compute as pc

    if pa.types.is_list(column.type):
        column = json_texts(column)
    elif not pa.types.is_string(column.type):
        return pc.fill_null(plain_text(column), "")
    if guarded:
        runs = pc.match_substring_regex(column, _FORMULA)
        column = pc.if_else(runs, pc.binary_join_element_wise("'", column, ""), column)
    doubled = pc.replace_substring(column, '"', '""')
    return pc.fill_null(pc.binary_join_element_wise('"', doubled, '"', ""), "")
