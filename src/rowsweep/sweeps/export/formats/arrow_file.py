"""Arrow IPC files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final

from rowsweep.options import one_of
from rowsweep.spelling import spelled

if TYPE_CHECKING:
    import pyarrow as pa

_CODECS: Final = ("lz4", "zstd", "none")


@spelled
@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowFile:
    """Arrow IPC files (Feather V2); `compression="none"` makes files that readers can map into memory."""

    compression: str = "lz4"

    name: ClassVar[str] = "arrow"
    suffix: ClassVar[str] = ".arrow"

    def __post_init__(self) -> None:
        one_of(self.compression, _CODECS, option="compression")

    def as_json(self) -> dict[str, Any]:
        """Answer name and options as they are stored and compared."""
        return {"name": self.name, **asdict(self)}

    def write(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO) -> int:
        """Write a whole file, forward only, batch by batch, and answer its rows; the sink stays open."""
        import pyarrow as pa

        codec = None if self.compression == "none" else self.compression
        rows = 0
        with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        return rows
