"""Read a part's rows ahead of who writes them: text off the database on one thread, decoded on the caller's."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rowsweep.sweeps.batch.pages import PageFinder
from rowsweep.sweeps.batch.sizing import BatchSize
from rowsweep.sweeps.export.types.decode import decode
from rowsweep.sweeps.keyset.cursor import run
from rowsweep.sweeps.passes.position import Position

if TYPE_CHECKING:
    import pyarrow as pa

    from rowsweep.sweeps.batch.connection import BatchConnection
    from rowsweep.sweeps.export.types.schema import ExportSchema
    from rowsweep.sweeps.keyset.statements import Statements

_AHEAD: Final = 3
_TEXT_BYTES: Final = 1 << 20
# Reads of about the same size, so that the bounds of several are found by one statement.
_STEADY: Final = (0.7, 1.5)
_FIRST_ROWS: Final = 2_000
_MOST_ROWS: Final = 50_000
_LOOK_SECONDS: Final = 0.1


class ReadSize(BatchSize):
    """How many keys are read at once: about a megabyte of text, so that wide rows cost no more memory than narrow ones.

    `part_rows` is how many a part spans. An error of the moment halves both, the span of one part only.
    """

    def __init__(self, part_rows: int) -> None:
        super().__init__(min(_FIRST_ROWS, part_rows), adapt=True)
        self.part_rows = part_rows
        self._span = part_rows

    def halve(self) -> None:
        """Take half as many, at least one."""
        super().halve()
        self._span = max(self._span // 2, 1)

    @property
    def span(self) -> int:
        """How many keys the next part is to span."""
        return self._span

    def planned(self) -> None:
        """Note that a part's range was found: the next is as wide as declared again."""
        self._span = self.part_rows

    def read(self, size: int) -> None:
        """Note how many bytes of text the last read had."""
        factor = min(max(_TEXT_BYTES / max(size, 1), 0.25), 4.0)
        if not _STEADY[0] < factor < _STEADY[1]:
            self.rows = int(float(f"{min(max(self.rows * factor, 1), _MOST_ROWS):.1e}"))

    def ease(self) -> None:
        """Let the next part span half as many keys: reads stay as large as they are, about a megabyte each."""
        self._span = max(self._span // 2, 1)

    def restart_at(self, rows: int) -> None:
        """Let the parts from now on span another number of keys, as an operator asked."""
        self.part_rows = self._span = rows


@dataclass(frozen=True, slots=True, kw_only=True)
class PartReader:
    """Read one part after the other, each in a transaction that sees one moment of the table.

    `statements` are bounded by the part's last key. A fixed number of reads is in memory, however large a part.
    """

    held: BatchConnection
    statements: Statements
    schema: ExportSchema
    params: Mapping[str, Any]
    size: ReadSize

    @contextmanager
    def batches(self, after: tuple[str, ...] | None, to: tuple[str, ...]) -> Iterator[Iterator[pa.RecordBatch]]:
        """Lend the record batches of the keys behind `after` up to `to`; the reading has ended when the block has."""
        lane = _Lane()
        thread = threading.Thread(target=self._fetch, args=(after, to, lane), name="rowsweep-export", daemon=True)
        thread.start()
        try:
            yield (decode(text, self.schema) for text in lane.texts())
        finally:
            lane.close()
            thread.join()

    def _fetch(self, after: tuple[str, ...] | None, to: tuple[str, ...], lane: _Lane) -> None:
        """Put the texts onto the lane, and at the end what ended them."""
        try:
            with self.held.transaction(reads=True):
                self.schema.check(self.held.connection)
                for text in self._texts(after, to):
                    if not lane.put(text):
                        break
            lane.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again by who reads the lane
            lane.put(error)

    def _texts(self, after: tuple[str, ...] | None, to: tuple[str, ...]) -> Iterator[bytes]:
        finder = PageFinder(self.held, self.statements, self.params, to, most_ahead=self.size.part_rows)
        at = Position(cursor=after)
        while (page := finder.find(at, self.size.rows)) is not None:
            text = self._read(finder, at, page.to)
            if text:
                yield text
            self.size.read(len(text))
            at = Position(cursor=page.to)

    def _read(self, finder: PageFinder, at: Position, to: tuple[str, ...]) -> bytes:
        query = self.statements.read_records(self.schema.expressions, started=at.cursor is not None)
        text = query.as_string(self.held.connection)
        row = run(self.held.connection, text, finder.page_values(at, to), prepare=True, binary=True).fetchone()
        return (row[0] if row else None) or b""


class _Lane:
    """Hand on what one thread reads to another, a few reads ahead; whoever closes it lets the other stop."""

    def __init__(self) -> None:
        self._queue: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=_AHEAD)
        self._closed = threading.Event()

    def put(self, item: bytes | BaseException | None) -> bool:
        """Wait for room and put; False where nobody reads any more."""
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=_LOOK_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    def texts(self) -> Iterator[bytes]:
        """Answer what was put, to its end; raises what ended it."""
        while (item := self._queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def close(self) -> None:
        """Read no more."""
        self._closed.set()
