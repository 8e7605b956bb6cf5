"""Writing what runs say of how far they are, off their own threads."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rowsweep.steps.progress import Progress
from rowsweep.telemetry.events import emit
from rowsweep.timers import Looper

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowsweep.worker.equipment import Equipment
    from rowsweep.worker.flights import Flight


class ProgressWriter:
    """Write each run's last value at most once a second, on one thread over the driver's control connections.

    What is not stored when a run ends rides in its settling statement. A write that the fence refuses says that the
    claim is gone, which `lose` is told.
    """

    def __init__(self, equipment: Equipment, lose: Callable[[Flight, str], None]) -> None:
        self._worker_id = equipment.worker_id
        self._driver = equipment.driver
        self._clock = equipment.clock
        self._flights = equipment.flights
        self._every = equipment.options.progress_seconds
        self._lose = lose
        self._is_failing = False
        self._looper = Looper("progress", self._step, timers=equipment.timers, failed=self._failed)

    def reporter(self) -> Progress:
        """Make the reporter of one execution."""
        return Progress(self._clock, every_seconds=self._every, wanted=self._wanted)

    def stop(self, timeout: float | None) -> bool:
        """End after the statement under way; answer whether that was within the seconds."""
        return self._looper.stop(timeout)

    def _wanted(self) -> None:
        with contextlib.suppress(RuntimeError):  # no thread can be started: it rides in the settling statement
            self._looper.start()
        self._looper.poke()

    def _step(self) -> float | None:
        waits = []
        for flight in self._flights.all():
            if flight.progress is None or flight.is_ended or flight.revoked is not None:
                continue
            due_in = flight.progress.due_in()
            if due_in == 0.0:
                self._write(flight, flight.progress)
                due_in = flight.progress.due_in()
            if due_in is not None:
                waits.append(due_in)
        return min(waits, default=None)

    def _write(self, flight: Flight, progress: Progress) -> None:
        number, value = progress.take()
        held = None
        try:
            held = self._driver.control().jobs.record_progress(flight.claim, value)
        finally:
            progress.written(number, stored=bool(held))
        self._is_failing = False
        if not held and not flight.is_ended:
            self._lose(flight, "the fence refused its progress")

    def _failed(self, error: BaseException) -> float:
        """Try again with the next second; say so once, until a write has worked again."""
        if not self._is_failing:
            emit("jobs.worker.tick-failed", worker_id=self._worker_id, error=error)
        self._is_failing = True
        return self._every
