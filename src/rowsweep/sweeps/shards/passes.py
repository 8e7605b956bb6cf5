"""The pass of one shard of a backfill; at the end of the run the first looks again for all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from rowsweep.queue.stores.shards import shard_suffix
from rowsweep.sweeps.late.look import LEFT_STEP
from rowsweep.sweeps.passes.backfill import BackfillPass
from rowsweep.sweeps.setup import set_up
from rowsweep.sweeps.shards.sharded import Sharded

if TYPE_CHECKING:
    from rowsweep.queue.stores.ledger import Backfill
    from rowsweep.sweeps.passes.position import KeyRange

_BATCHES_WORTH_HALVING: Final = 4


class ShardPass(Sharded, BackfillPass):
    """Carry one shard of a backfill on from wherever it stands."""

    def _open_with(self, known: Backfill | None) -> Any:
        if self._held is self._source:
            with self._held.transaction():
                return self._store(*self._found(), known)
        with self._source.transaction():
            found = self._found()
        with self._held.transaction():
            return self._store(*found, known)

    def _found(self) -> tuple[Any, list[KeyRange]]:
        """Find the setup and the ranges, in the open transaction of the source."""
        spec, connection = self._sweep.spec, self._source.connection
        setup = set_up(connection, spec.rows, spec.assignments)
        ranges = self._divide(setup)
        return replace(setup, shards=len(ranges)).as_json(), ranges

    def _worth_taking(self) -> int:
        return _BATCHES_WORTH_HALVING * self._size.rows

    def _uses_up(self) -> bool:
        if not self._is_one_of_several:
            return super()._uses_up()
        noted = [self._ctx.step.read(LEFT_STEP + shard_suffix(at)) for at in range(1, self._setup.shards + 1)]
        return super()._uses_up() and not any(noted)

    def _named(self, step: str) -> str:
        return step + shard_suffix(self._number)
