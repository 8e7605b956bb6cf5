"""The pass of one shard of an export; the first, at the end of the run, writes the manifest for all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from rowsweep.sweeps.export.passes import ExportPass
from rowsweep.sweeps.export.places.place import resolve
from rowsweep.sweeps.export.position import summed_export
from rowsweep.sweeps.export.setup import set_up_export
from rowsweep.sweeps.shards.sharded import Sharded

if TYPE_CHECKING:
    from rowsweep.queue.stores.ledger import Backfill
    from rowsweep.sweeps.export.manifest import Part
    from rowsweep.sweeps.passes.position import Position

_PARTS_WORTH_HALVING: Final = 2


class ExportShardPass(Sharded, ExportPass):
    """Carry one shard of an export on from wherever it stands: it writes parts under names of its own."""

    def _open_with(self, known: Backfill | None) -> Any:
        """Take the place before the other jobs are there: none of them begins before the marker names this run."""
        spec = self._sweep.spec
        where = resolve(spec.to, self._input)
        with self._source.transaction(reads=True):
            setup = set_up_export(self._source.connection, spec, where)
            ranges = self._divide(setup.rows)
        self._release()
        self._destination = self._at_place(where)
        self._destination.take(overwrite=spec.overwrite)
        stored = replace(setup, rows=replace(setup.rows, shards=len(ranges))).as_json()
        with self._held.transaction():
            return self._store(stored, ranges, known)

    def _worth_taking(self) -> int:
        return _PARTS_WORTH_HALVING * self._size.part_rows

    def _own_totals(self) -> dict[str, Any]:
        return {"rows": self._at.rows, "bytes": self._at.bytes, "parts": self._at.batches}

    def _sum(self, shards: list[Position]) -> Position:
        return summed_export(shards)

    def _in_key_order(self, parts: list[Part]) -> list[Part]:
        """Answer the parts as the keys of the table go, whichever shard wrote which."""
        if not self._is_one_of_several:
            return super()._in_key_order(parts)
        with self._source.transaction(reads=True):
            order = self._keys.in_order(self._source.connection, [part.after for part in parts])
        return [parts[at] for at in order]
