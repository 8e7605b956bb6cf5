"""What a format is, and how one is named."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, runtime_checkable

from rowsweep.errors import InvalidDeclaration, nearest
from rowsweep.sweeps.export.formats.arrow_file import ArrowFile
from rowsweep.sweeps.export.formats.delimited import Csv
from rowsweep.sweeps.export.formats.ndjson import Ndjson
from rowsweep.sweeps.export.formats.parquet import Parquet

if TYPE_CHECKING:
    import pyarrow as pa


@runtime_checkable
class Format(Protocol):
    """One format with its options; a part is one whole file of it."""

    @property
    def name(self) -> str:
        """The word that names it."""

    @property
    def suffix(self) -> str:
        """The ending of a part's name."""

    def write(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO) -> int:
        """Write a whole file, forward only, as the batches come, and answer its rows; the sink stays open."""

    def as_json(self) -> dict[str, Any]:
        """Answer name and options as they are stored and compared."""


_FORMATS: Final[dict[str, type[Format]]] = {"parquet": Parquet, "csv": Csv, "ndjson": Ndjson, "arrow": ArrowFile}


def as_format(value: object) -> Format:
    """Answer the format of a word with its default options, or the format itself.

    Raises InvalidDeclaration with the nearest word.
    """
    if isinstance(value, str) and value in _FORMATS:
        return _FORMATS[value]()
    if isinstance(value, Format) and not isinstance(value, type):
        return value
    near = (nearest(value, list(_FORMATS)) if isinstance(value, str) else []) or ["parquet"]
    raise InvalidDeclaration(
        f"format must be one of {', '.join(_FORMATS)}, or one of their options such as rs.Csv(bom=True); "
        f"got {value!r:.80}.",
        fix=f"format={near[0]!r}",
        meta={"field": "format"},
    )
