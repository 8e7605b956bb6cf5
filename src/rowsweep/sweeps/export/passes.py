"""The pass of an export: part by part to the end, then the manifest, then the mark that it is whole."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rowsweep.queue.stores.shards import shard_number
from rowsweep.sweeps.batch.closing import Closer
from rowsweep.sweeps.batch.pages import PageFinder
from rowsweep.sweeps.export.destination import MANIFEST, SUCCESS, Destination
from rowsweep.sweeps.export.manifest import Part, manifest_of, write_manifest
from rowsweep.sweeps.export.places.place import open_place, resolve
from rowsweep.sweeps.export.position import ExportPosition, as_position
from rowsweep.sweeps.export.reading import PartReader, ReadSize
from rowsweep.sweeps.export.setup import ExportSetup, set_up_export
from rowsweep.sweeps.export.work import PartWork
from rowsweep.sweeps.late.outlasting import count_outlasting
from rowsweep.sweeps.passes.table import Pass
from rowsweep.sweeps.setup import now_there, statements_for

if TYPE_CHECKING:
    from rowsweep.queue.stores.ledger import Backfill, NewBackfill
    from rowsweep.sweeps.export.declare import Export
    from rowsweep.sweeps.setup import Setup


class ExportPass(Pass):
    """Carry one run of an export on from wherever it stands.

    A crash at any moment costs at most the part in flight: the next attempt writes it again over the same keys.
    """

    _sweep: Export[Any]
    _at: ExportPosition
    _size: ReadSize
    _export: ExportSetup
    _destination: Destination
    _writers: int | None = None

    def _set_up(self) -> Any:
        spec = self._sweep.spec
        where = resolve(spec.to, self._input)
        with self._source.transaction(reads=True):
            setup = set_up_export(self._source.connection, spec, where)
        self._source.release()
        self._at_place(where).take(overwrite=spec.overwrite)
        return setup.as_json()

    def _take_up(self, stored: Any) -> Setup:
        self._export = ExportSetup.from_json(stored)
        self._export.check(self._sweep.name, self._sweep.spec)
        self._destination = self._at_place(self._export.where)
        self._destination.check()
        self._destination.remove_leftovers()
        return self._export.rows

    def _at_place(self, where: str) -> Destination:
        return Destination(
            place=open_place(where),
            run_id=self._ctx.run_id,
            name=self._sweep.name,
            suffix=self._sweep.spec.format.suffix,
            shard=shard_number(self._ctx.record.concurrency_key),
        )

    def _new_row(self, known: Backfill | None) -> NewBackfill:
        row = super()._new_row(known)
        return replace(row, options={**(row.options or {}), "destination": self._destination.place.shown})

    def _first_size(self) -> ReadSize:
        return self._size

    def _work_for(self, setup: Setup) -> Any:
        rows, params = self._sweep.spec.rows, setup.params or {}
        self._finder = PageFinder(self._source, setup.statements(rows), params, setup.upper)
        self._size = ReadSize(self._batch_rows())
        reader = PartReader(
            held=self._source,
            statements=statements_for(setup.table, rows, bounded=True),
            schema=self._export.schema,
            params=params,
            size=self._size,
        )
        return PartWork(
            finder=self._finder,
            reader=reader,
            closer=Closer(**self._closing()),
            destination=self._destination,
            format=self._sweep.spec.format,
            stop=self._ctx.signal.raise_if_aborted,
        )

    def _read_back(self, stored: Any) -> ExportPosition:
        return self._position(stored, self._step)

    def _position(self, stored: Any, step: str) -> ExportPosition:
        return as_position(stored, step)

    def _blame(self, error: Exception) -> None:
        super()._blame(error)
        error.add_note(f"while exporting to {self._destination.place.shown}")

    def _behind_pages(self) -> None:
        """Ask whose rows may be in no part: a part that is written is never changed, so nobody is waited for."""
        self._writers = count_outlasting(self._ctx, self._source, self._setup.table, sweep=self._sweep.name)

    def _told_late(self) -> dict[str, Any] | None:
        return {"writers": self._writers} if self._writers else None

    def _more_totals(self) -> dict[str, Any]:
        return {"writers": self._writers}

    def _finish_ledger(self) -> dict[str, Any]:
        """Compare every part with its record, then write the manifest, then the mark, then the ledger's end."""
        self._release()
        destination, place, at = self._destination, self._destination.place, self._at
        destination.remove_leftovers(of_all=True)
        steps = self._ctx.driver.stores().steps.list(self._ctx.run_id, kinds=["part"])
        parts = self._in_key_order([Part.from_record(step.output) for step in steps])
        self._release()
        sizes = place.sizes()
        for part in parts:
            part.check(place, sizes)
        destination.check_alone({part.name for part in parts})
        with self._source.transaction(reads=True):
            until = now_there(self._source.connection)
        self._release()
        document = manifest_of(self._sweep.name, self._ctx.run_id, self._export, parts, until=until)
        self._seal(document)
        self._end_ledger()
        manifest = f"{place.shown}/{MANIFEST}"
        return {
            "rows": at.rows, "bytes": at.bytes, "parts": len(parts), "manifest": manifest, **self._more_totals(),
        }  # fmt: skip

    def _in_key_order(self, parts: list[Part]) -> list[Part]:
        """Answer the parts as the keys of the table go: as their numbers do."""
        return sorted(parts, key=lambda part: (len(part.name), part.name))

    def _seal(self, document: dict[str, Any]) -> None:
        """Write the last objects under the job row's lock, unless they are uploads, which could outlast the lease."""
        with self._held.transaction():
            self._fence()
            if self._destination.place.renames:
                self._complete(document)
        if not self._destination.place.renames:
            self._release()
            self._complete(document)

    def _complete(self, document: dict[str, Any]) -> None:
        self._destination.check()
        write_manifest(self._destination.place, document)
        self._destination.release()
        self._destination.place.write(SUCCESS, b"")

    def _fence(self) -> None:
        if not self._held.stores.steps.guard(self._ctx.claim):
            raise self._lost()
