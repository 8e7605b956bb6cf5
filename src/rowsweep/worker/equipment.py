"""What every part of a worker is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rowsweep.signals import RunSignal
from rowsweep.worker.flights import Flights
from rowsweep.worker.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowsweep.clock import Clock
    from rowsweep.lifecycle import Lifecycle
    from rowsweep.queue.contract import Driver
    from rowsweep.timers import Timers
    from rowsweep.worker.options import WorkerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """A worker's surroundings for one start, and what its parts share.

    `drain_signal` is composed into every run's signal.
    """

    worker_id: str
    driver: Driver
    context: Callable[[], Any]
    options: WorkerOptions
    clock: Clock
    timers: Timers
    lifecycle: Lifecycle
    flights: Flights = field(default_factory=Flights)
    tally: Tally = field(default_factory=Tally)
    drain_signal: RunSignal = field(default_factory=RunSignal)
