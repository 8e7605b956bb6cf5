"""Parquet: row groups, zstd."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final

from rowsweep.options import count, one_of
from rowsweep.spelling import spelled

if TYPE_CHECKING:
    import pyarrow as pa

_CODECS: Final = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")
_HIGHEST_LEVEL: Final = {"zstd": 22, "gzip": 9, "brotli": 11}
# Rows wide enough to reach this before `row_group_rows` make a smaller group, so that memory stays bounded.
_GROUP_BYTES: Final = 64 << 20
_SAMPLE_ROWS: Final = 20_000
_REPEATED: Final = 4


@spelled
@dataclass(frozen=True, slots=True, kw_only=True)
class Parquet:
    """Parquet files; a row group has `row_group_rows` rows, fewer where these are wide (64 MB)."""

    compression: str = "zstd"
    compression_level: int | None = None
    row_group_rows: int = 128_000

    name: ClassVar[str] = "parquet"
    suffix: ClassVar[str] = ".parquet"

    def __post_init__(self) -> None:
        one_of(self.compression, _CODECS, option="compression")
        count(self.row_group_rows, option="row_group_rows", minimum=1, maximum=100_000_000)
        if self.compression_level is not None:
            highest = _HIGHEST_LEVEL.get(self.compression, 0)
            count(self.compression_level, option="compression_level", minimum=1 if highest else 0, maximum=highest)

    def as_json(self) -> dict[str, Any]:
        """Answer name and options as they are stored and compared."""
        return {"name": self.name, **asdict(self)}

    def write(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO) -> int:
        """Write a whole file, forward only, one row group in memory, and answer its rows; the sink stays open."""
        groups = self._groups(batches, schema)
        first = next(groups, None)
        rows = 0
        with self._writer(schema, sink, first) as writer:
            while first is not None:
                writer.write_table(first, row_group_size=max(first.num_rows, 1))
                rows += first.num_rows
                first = next(groups, None)
        return rows

    def _writer(self, schema: pa.Schema, sink: BinaryIO, sample: pa.Table | None) -> Any:
        from pyarrow import parquet

        return parquet.ParquetWriter(
            sink,
            schema,
            compression=self.compression,
            compression_level=self.compression_level,
            use_dictionary=[] if sample is None else _repetitive(sample),
        )

    def _groups(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
        import pyarrow as pa

        held: list[pa.RecordBatch] = []
        for batch in batches:
            start = 0
            while start < batch.num_rows:
                room = self.row_group_rows - sum(one.num_rows for one in held)
                held.append(batch.slice(start, room))
                start += held[-1].num_rows
                full = sum(one.num_rows for one in held) >= self.row_group_rows
                if full or sum(one.nbytes for one in held) >= _GROUP_BYTES:
                    yield pa.Table.from_batches(held, schema=schema)
                    held = []
        if held:
            yield pa.Table.from_batches(held, schema=schema)


def _repetitive(sample: pa.Table) -> list[str]:
    """Find the text columns whose values come back: a dictionary of anything else costs time and bytes."""
    import pyarrow as pa
    from pyarrow import compute as pc

    head = sample.slice(0, _SAMPLE_ROWS)
    return [
        field.name
        for field, column in zip(head.schema, head.columns, strict=True)
        if pa.types.is_string(field.type) and pc.count_distinct(column).as_py() * _REPEATED <= head.num_rows
    ]
