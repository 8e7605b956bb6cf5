"""The memory driver: the contract's stores over rows of this process, for tests and trials."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rowsweep.clock import SystemClock
from rowsweep.errors import NotImplementedByDriver
from rowsweep.queue.contract import Stores, Transaction
from rowsweep.queue.memory.events.store import MemoryEvents
from rowsweep.queue.memory.holds.pauses import MemoryPauses
from rowsweep.queue.memory.holds.slots import MemorySlots
from rowsweep.queue.memory.inspection import MemoryInspection
from rowsweep.queue.memory.jobs import MemoryJobs
from rowsweep.queue.memory.ledger.rejected import MemoryRejected
from rowsweep.queue.memory.ledger.shards import MemoryShards
from rowsweep.queue.memory.ledger.store import MemoryLedger
from rowsweep.queue.memory.outbox.store import MemoryOutbox
from rowsweep.queue.memory.schedules import MemoryLeader, MemorySchedules
from rowsweep.queue.memory.state import State
from rowsweep.queue.memory.steering import MemorySteering
from rowsweep.queue.memory.steps import MemorySteps
from rowsweep.queue.memory.upkeep.counters import MemoryCounters
from rowsweep.queue.memory.upkeep.health import MemoryHealth
from rowsweep.queue.memory.upkeep.retention import MemoryRetention
from rowsweep.queue.memory.wake import MemoryWake
from rowsweep.queue.memory.workers import MemoryWorkers
from rowsweep.spelling import spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from rowsweep.clock import Clock
    from rowsweep.queue.bus import EventBus
    from rowsweep.queue.stores.outbox import OutboxStore


@spelled
class MemoryDriver:
    """Keep the queue in this process; it is gone with it, and no other process sees it.

    One lock serialises every call. A transaction copies the rows when it is entered, holds that lock until it is
    left, and puts the copy back on any exception; nested in the same thread it is a savepoint. Other threads wait
    for its end, so a transaction longer than the visibility timeout loses every claim of the process.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._state = State(clock=clock or SystemClock())
        self._stores = _stores_over(self._state)
        self._open: list[Transaction] = []

    @property
    def name(self) -> str:
        """Answer `memory`."""
        return "memory"

    @property
    def place(self) -> str:
        """Say that the queue is kept nowhere else."""
        return "the memory of this process"

    def stores(self) -> Stores:
        """Answer the stores; each call is atomic by itself."""
        return self._stores

    def control(self) -> Stores:
        """Answer the same stores: there are no connections to use up."""
        return self._stores

    @contextmanager
    def transaction(self, *, settings: Mapping[str, str] | None = None) -> Iterator[Transaction]:  # noqa: ARG002 - the contract's
        """Hold the lock for the block; on any exception every row is as it was before.

        `settings` have nobody to read them here.
        """
        with self._state.lock:
            restore = self._state.snapshot()
            opened = Transaction(stores=_stores_over(self._state))
            self._open.append(opened)
            try:
                yield opened
            except BaseException:
                restore()
                raise
            finally:
                self._open.remove(opened)

    def join(self, connection: Any) -> Stores:
        """Answer the stores of this driver's own open transaction; nothing else can be joined."""
        if isinstance(connection, Transaction) and any(connection is opened for opened in self._open):
            return connection.stores
        raise NotImplementedByDriver(
            f"the memory driver has no connections; a {type(connection).__name__} cannot be joined.",
            fix="with driver.transaction() as tx: driver.join(tx)",
            meta={"driver": self.name, "feature": "join"},
        )

    def outbox_over(self, tx: Any, *, known: Any = None, is_asked: bool = False) -> OutboxStore | None:  # noqa: ARG002 - the contract's
        """Answer the outbox of this driver's own open transaction where it is asked for."""
        return self.join(tx).outbox if is_asked else None

    def sweep_connection(self, wanted: Callable[[], None] | None = None) -> AbstractContextManager[Any]:  # noqa: ARG002 - the contract's
        """Refuse: a sweep works on tables, and the memory driver keeps none."""
        raise NotImplementedByDriver(
            "the memory driver keeps no tables, so there is nothing to sweep.",
            fix='rs.connect("postgresql://…")',
            meta={"driver": self.name, "feature": "sweep_connection"},
        )

    def keep_events(self, at_most: int) -> None:
        """Keep so many events, the newest."""
        self._state.max_events = at_most

    def event_bus(self, **options: Any) -> EventBus:
        """Answer a bus over this driver; takes the bus's options."""
        from rowsweep.queue.memory.events.bus import MemoryEventBus

        return MemoryEventBus(self, **options)

    def listen(self) -> MemoryWake:
        """Hear what this driver's own calls make due."""
        return MemoryWake(self._state)

    def close(self) -> None:
        """Do nothing: there is no connection, and the rows stay readable."""


def _stores_over(state: State) -> Stores:
    return Stores(
        jobs=MemoryJobs(state),
        steps=MemorySteps(state),
        ledger=MemoryLedger(state),
        rejected=MemoryRejected(state),
        inspection=MemoryInspection(state),
        steering=MemorySteering(state),
        workers=MemoryWorkers(state),
        schedules=MemorySchedules(state),
        leader=MemoryLeader(state),
        slots=MemorySlots(state),
        pauses=MemoryPauses(state),
        events=MemoryEvents(state),
        retention=MemoryRetention(state),
        health=MemoryHealth(state),
        counters=MemoryCounters(state),
        outbox=MemoryOutbox(state),
        shards=MemoryShards(state),
    )
