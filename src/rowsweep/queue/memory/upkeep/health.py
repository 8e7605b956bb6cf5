"""The health of a queue in memory: there is no server that could be unwell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowsweep.queue.memory.state import locked
from rowsweep.queue.memory.workers import depth_of, queues_with_rows
from rowsweep.queue.stores.health import Kept, ServerFacts

if TYPE_CHECKING:
    from rowsweep.queue.memory.state import State
    from rowsweep.queue.stores.health import TableFacts
    from rowsweep.queue.stores.schedules import Leadership
    from rowsweep.telemetry.instruments import Depth


class MemoryHealth:
    """Read how the queue is."""

    def __init__(self, state: State) -> None:
        self._state = state

    @locked
    def server(self) -> ServerFacts:
        """Answer this process's clock; nothing here is limited."""
        return ServerFacts(
            now=self._state.now(),
            version="",
            is_standby=False,
            connections=0,
            max_connections=None,
            role="",
            role_limit=None,
            oldest_transaction_seconds=0.0,
            oldest_transaction_pid=None,
        )

    @locked
    def depths(self) -> list[Depth]:
        """Count what waits in each queue, and its dead letters."""
        state, now = self._state, self._state.now()
        return [depth_of(state, queue, now) for queue in sorted(queues_with_rows(state))]

    @locked
    def leaders(self) -> list[Leadership]:
        """Answer every lease of a scheduler, expired ones too."""
        return sorted(self._state.leaders.values(), key=lambda lease: lease.name)

    def tables(self) -> list[TableFacts]:
        """Answer none: nothing here is ever dead and kept."""
        return []

    @locked
    def kept(self) -> Kept:
        """Answer how old the oldest finished jobs are."""
        return Kept(done_seconds=self._oldest("done", "cancelled"), dead_seconds=self._oldest("dead", "failed"))

    def _oldest(self, *states: str) -> float | None:
        ended = [job.updated_at for job in self._state.jobs.values() if job.state in states]
        return (self._state.now() - min(ended)).total_seconds() if ended else None
