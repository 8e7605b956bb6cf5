"""Watching what the ledger wants of the sweeps in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rowsweep.errors import Aborted
from rowsweep.queue.stores.shards import shard_number
from rowsweep.telemetry.events import emit
from rowsweep.timers import Looper

if TYPE_CHECKING:
    from rowsweep.worker.equipment import Equipment
    from rowsweep.worker.flights import Flight

WATCH_SECONDS: Final = 1.0


class Watch:
    """Ask once a second, in one statement for all sweeps in flight; a cancelled one is aborted at once.

    What else is wanted is kept on the flight, for the sweep to read between its batches and while it waits.
    """

    def __init__(self, equipment: Equipment) -> None:
        self._worker_id = equipment.worker_id
        self._driver = equipment.driver
        self._flights = equipment.flights
        self._looper = Looper("watch", self._step, timers=equipment.timers, failed=self._failed)

    def admit(self, flight: Flight) -> None:
        """Watch this flight too, if it has a row in the ledger."""
        if flight.handle.has_ledger:
            self._looper.start()
            self._looper.poke()

    def stop(self, timeout: float | None) -> bool:
        """End after the statement under way; answer whether that was within the seconds."""
        return self._looper.stop(timeout)

    def _step(self) -> float | None:
        flights = [flight for flight in self._flights.all() if flight.handle.has_ledger and not flight.is_ended]
        ledger = self._driver.control().ledger
        if not flights or ledger is None:
            return None
        asked = ledger.wanted([flight.job.run_id for flight in flights])
        for flight in flights:
            flight.asked = asked.get(flight.job.run_id, flight.asked)
            if flight.asked is not None and flight.asked.wanted == "cancel" and self._stops(flight):
                flight.revoke(_cancelled(flight))
        return WATCH_SECONDS

    def _stops(self, flight: Flight) -> bool:
        """Cancel a shard's own job where another's failure stops the run; False where a resume came in between."""
        shards, number = self._driver.control().shards, shard_number(flight.job.concurrency_key)
        if shards is None or not (flight.handle.has_shards or number > 1):
            return True
        return shards.stop(flight.claim, number) is not None

    def _failed(self, error: BaseException) -> float:
        emit("jobs.worker.tick-failed", worker_id=self._worker_id, error=error)
        return WATCH_SECONDS


def _cancelled(flight: Flight) -> Aborted:
    return Aborted(
        f"The run {flight.job.run_id} of {flight.job.name!r} was cancelled.",
        fix=f"rowsweep sweeps show {flight.job.run_id}",
        meta={"run_id": str(flight.job.run_id), "job_id": str(flight.job.id)},
    )
