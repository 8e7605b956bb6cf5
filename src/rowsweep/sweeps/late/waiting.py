"""The wait behind the last page, for the transactions that had written to the table and are open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rowsweep.sweeps.late.options import longest_wait_seconds
from rowsweep.sweeps.late.writers import Writers, find_writers, still_open
from rowsweep.sweeps.passes.steered import SteeredPass

if TYPE_CHECKING:
    from rowsweep.sweeps.batch.connection import BatchConnection
    from rowsweep.sweeps.declare import RowSweep
    from rowsweep.sweeps.setup import Setup

WRITERS_STEP: Final = "sweep:writers"
_FIRST_SECONDS: Final = 0.05
_LONGEST_SECONDS: Final = 1.0


class WriterWait(SteeredPass):
    """Wait for open transactions, bounded, on no connection of the pass's own; who they are is a durable step."""

    _sweep: RowSweep[Any]
    _setup: Setup
    _source: BatchConnection

    def _known_writers(self) -> Writers | None:
        """Answer who was open at the last page, where an attempt before found anybody."""
        stored = self._ctx.step.checkpoint(self._named(WRITERS_STEP)).get()
        return None if stored is None else Writers.from_json(stored)

    def _open_writers(self) -> Writers:
        """Answer who was open at the last page."""
        if (known := self._known_writers()) is not None:
            return known
        with self._source.transaction():
            found = find_writers(self._source.connection, self._setup.table)
        return self._kept(found)

    def _kept(self, found: Writers) -> Writers:
        """Keep who was found where it is anybody, so that none is forgotten by a crash."""
        if found.open:
            self._ctx.step.checkpoint(self._named(WRITERS_STEP)).put(found.as_json())
        return found

    def _ask_writers(self, writers: Writers) -> tuple[tuple[str, ...], float]:
        if not writers.open:
            return (), 0.0
        with self._source.transaction():
            return still_open(self._source.connection, writers)

    def _wait_for(self, writers: Writers) -> int:
        """Wait until they have ended or the time is up; answer how many are open still."""
        longest = longest_wait_seconds(self._sweep.spec.late_wait)
        pause = _FIRST_SECONDS
        while True:
            left, waited = self._ask_writers(writers)
            if not left or (longest is not None and waited >= longest):
                return len(left)
            why = f"{len(left)} open transaction{'s' * (len(left) > 1)} that wrote to {self._setup.table.qualified}"
            if pause >= _LONGEST_SECONDS and why != self._waiting_for:
                self._show_waiting(why)
            self._wait(pause if longest is None else min(pause, max(longest - waited, 0.01)), why)
            pause = min(2 * pause, _LONGEST_SECONDS)

    def _named(self, step: str) -> str:
        """Name a step of this job: one of several jobs of a run has its mark behind it."""
        return step
