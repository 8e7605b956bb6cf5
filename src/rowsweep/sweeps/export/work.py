"""One part of an export: its key range stored, then read, written, published, and checkpointed."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from rowsweep.errors import LeaseLost
from rowsweep.queue.stores.shards import shard_suffix
from rowsweep.queue.stores.steps import StepPut
from rowsweep.sweeps.batch.closing import BatchDone, CheckpointMoved
from rowsweep.sweeps.export.position import PART_STEPS, as_position

if TYPE_CHECKING:
    import pyarrow as pa

    from rowsweep.queue.contract import Stores
    from rowsweep.sweeps.batch.closing import Closer
    from rowsweep.sweeps.batch.pages import PageFinder
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
    keys, in the place of what it left. A part that is checkpointed is never written again. Another shard may take over
    what lies behind the part meanwhile: a stored range is never given away.
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
            return self._published(at, at.plan.to, written) if written.rows else self._passed(at, at.plan.to)
        finally:
            written.draft.discard()

    def _planned(self, at: ExportPosition, *, stored: bool) -> BatchDone:
        with self.finder.held.transaction(reads=True):
            page = self.finder.find(at, self.reader.size.span)
        self.reader.size.planned()
        after = at.finished() if page is None else at.planned_to(page.to)
        with self.closer.held.transaction() as marker:
            closed = self.closer.close(at, after, marker, stored=stored)
        return BatchDone(at=after, is_full=page is not None and page.is_full, closed=closed)

    def _written(self, at: ExportPosition, to: tuple[str, ...]) -> Written:
        draft = self.destination.draft(at.index + 1, self.closer.ctx.claim.claim)
        try:
            file = CountedFile(draft.file)
            with self.reader.batches(at.cursor, to) as batches:
                sink = cast("BinaryIO", file)  # of which a format only writes and tells
                rows = self.format.write(self._heeding(batches), self.reader.schema.arrow, sink)
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

    def _published(self, at: ExportPosition, to: tuple[str, ...], written: Written) -> BatchDone:
        """Publish under the job row's lock where that is one quick step; an upload could outlast the lease."""
        held, destination = self.closer.held, self.destination
        destination.check()
        checksum = None
        if not destination.place.renames:
            with held.transaction():
                self._standing(at, held.stores)
            written.draft.publish()
            checksum = destination.place.checksum(destination.part_name(at.index + 1))
        with held.transaction() as marker:
            at = self._standing(at, held.stores)
            if destination.place.renames:
                written.draft.publish()
            held.stores.steps.put(self._record(at, written, checksum), self.closer.ctx.claim)
            after = at.passed(to, rows=written.rows, size=written.bytes)
            closed = self.closer.close(at, after, marker, stored=True)
        return BatchDone(at=after, is_full=False, closed=closed)

    def _passed(self, at: ExportPosition, to: tuple[str, ...]) -> BatchDone:
        """Store the checkpoint behind a key range without rows.

        Where the rows of a part went after a try had published it, and was cut off before its checkpoint, that part
        goes too: no later one need come under its name.
        """
        held, destination = self.closer.held, self.destination
        name = destination.part_name(at.index + 1)
        is_left = name in destination.place.sizes()
        with held.transaction() as marker:
            at = self._standing(at, held.stores)
            if is_left:
                destination.check()
                destination.place.remove(name)
            after = at.passed(to, rows=0, size=0)
            closed = self.closer.close(at, after, marker, stored=True)
        return BatchDone(at=after, is_full=False, closed=closed)

    def _standing(self, at: ExportPosition, stores: Stores) -> ExportPosition:
        """Lock the job's row, and answer the position as it is stored: the end of its range may lie nearer by now."""
        ctx, step = self.closer.ctx, self.closer.step
        if not stores.steps.guard(ctx.claim):
            raise LeaseLost(
                f"Another worker holds {ctx.job!r} now, or it was cancelled: this part is not published.",
                fix=f"rowsweep jobs show {ctx.job_id}",
                meta={"job_id": str(ctx.job_id)},
            )
        if at.range is None:
            return at
        stored = stores.steps.get(ctx.run_id, step)
        found = as_position(None if stored is None else stored.output, step)
        if replace(found, range=at.range) != at:
            raise CheckpointMoved
        return found

    def _record(self, at: ExportPosition, written: Written, checksum: str | None) -> StepPut:
        index, destination = at.index + 1, self.destination
        record = {
            "name": destination.part_name(index), "rows": written.rows, "bytes": written.bytes,
            "sha256": written.sha256, "checksum": checksum,
        }  # fmt: skip
        if at.range is not None:
            record["after"] = None if at.cursor is None else list(at.cursor)
        return StepPut(
            run_id=self.closer.ctx.run_id,
            name=f"{PART_STEPS}{index:05d}{shard_suffix(destination.shard)}",
            kind="part",
            status="done",
            output=record,
        )
