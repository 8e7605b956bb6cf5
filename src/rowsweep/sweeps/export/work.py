"""One part of an export: its key range stored, then read, written, published, and checkpointed."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from rowsweep.errors import LeaseLost
from rowsweep.queue.records import StepPut
from rowsweep.sweeps.batch.work import BatchDone
from rowsweep.sweeps.export.destination import part_name
from rowsweep.sweeps.export.position import PART_STEPS

if TYPE_CHECKING:
    import pyarrow as pa

    from rowsweep.queue.contract import Stores
    from rowsweep.queue.records import BatchClosed
    from rowsweep.sweeps.batch.pages import PageFinder
    from rowsweep.sweeps.batch.work import Closer
    from rowsweep.sweeps.export.destination import Destination
    from rowsweep.sweeps.export.formats.format import Format
    from rowsweep.sweeps.export.places.place import Draft
    from rowsweep.sweeps.export.position import ExportPosition
    from rowsweep.sweeps.export.reading import PartReader


class CountedFile(io.RawIOBase):
    """Hand bytes on to a file, counting and hashing them."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        """The SHA-256 of all bytes so far."""
        return self._hash.hexdigest()

    def writable(self) -> bool:
        """Say that it takes bytes."""
        return True

    def write(self, data: Any) -> int:
        """Take all of the bytes."""
        with memoryview(data) as view:
            self._hash.update(view)
            self._file.write(view)
            self.size += view.nbytes
            return view.nbytes

    def tell(self) -> int:
        """Answer how many bytes came."""
        return self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A part that is written and not yet published."""

    draft: Draft
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartWork:
    """Export part by part.

    A part's key range is stored before the part is written, so one that a crash cut off is written again over the same
    keys, in the place of what it left. A part that is checkpointed is never written again.
    """

    finder: PageFinder
    reader: PartReader
    closer: Closer
    destination: Destination
    format: Format
    stop: Callable[[], None]

    def next(self, at: ExportPosition, limit: int, *, stored: bool) -> BatchDone:  # noqa: ARG002 - reads adapt themselves
        """Store the next part's key range where none is; else write that part, and store the checkpoint behind it."""
        if at.plan is None:
            return self._planned(at, stored=stored)
        written = self._written(at, at.plan.to)
        try:
            after = at.passed(at.plan.to, rows=written.rows, size=written.bytes if written.rows else 0)
            closed = self._published(at, after, written) if written.rows else self._closed(at, after)
        finally:
            written.draft.discard()
        return BatchDone(at=after, is_full=False, closed=closed)

    def _planned(self, at: ExportPosition, *, stored: bool) -> BatchDone:
        with self.finder.held.transaction(reads=True):
            page = self.finder.find(at, self.reader.size.span)
        self.reader.size.planned()
        after = at.finished() if page is None else at.planned_to(page.to)
        closed = self._closed(at, after, stored=stored)
        return BatchDone(at=after, is_full=page is not None and page.is_full, closed=closed)

    def _written(self, at: ExportPosition, to: tuple[str, ...]) -> Written:
        draft = self.destination.draft(at.index + 1, self.closer.ctx.claim.claim)
        try:
            file = CountedFile(draft.file)
            with self.reader.batches(at.cursor, to) as batches:
                rows = self.format.write(self._heeding(batches), self.reader.schema.arrow, file)  # type: ignore[arg-type]
            if rows:
                draft.seal()
        except BaseException:
            draft.discard()
            raise
        return Written(draft=draft, rows=rows, bytes=file.size, sha256=file.sha256)

    def _heeding(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.stop()
            yield batch

    def _published(self, at: ExportPosition, after: ExportPosition, written: Written) -> BatchClosed:
        """Publish under the job row's lock where that is one quick step; an upload could outlast the lease."""
        held, place = self.closer.held, self.destination.place
        self.destination.check()
        checksum = None
        if not place.renames:
            with held.transaction():
                self._fence(held.stores)
            written.draft.publish()
            checksum = place.checksum(part_name(after.index, self.format.suffix))
        with held.transaction() as marker:
            if place.renames:
                self._fence(held.stores)
                written.draft.publish()
            held.stores.steps.put(self._record(after.index, written, checksum), self.closer.ctx.claim)
            return self.closer.close(at, after, marker, stored=True)

    def _closed(self, at: ExportPosition, after: ExportPosition, *, stored: bool = True) -> BatchClosed:
        with self.closer.held.transaction() as marker:
            return self.closer.close(at, after, marker, stored=stored)

    def _fence(self, stores: Stores) -> None:
        ctx = self.closer.ctx
        if not stores.steps.guard(ctx.claim):
            raise LeaseLost(
                f"Another worker holds {ctx.job!r} now, or it was cancelled: this part is not published.",
                fix=f"rowsweep jobs show {ctx.job_id}",
                meta={"job_id": str(ctx.job_id)},
            )

    def _record(self, index: int, written: Written, checksum: str | None) -> StepPut:
        name = part_name(index, self.format.suffix)
        record = {"name": name, "rows": written.rows, "bytes": written.bytes, "sha256": written.sha256}
        return StepPut(
            run_id=self.closer.ctx.run_id,
            name=f"{PART_STEPS}{index:05d}",
            kind="part",
            status="done",
            output={**record, "checksum": checksum},
        )
