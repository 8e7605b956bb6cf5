"""Pauses in memory: rows that every claim reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowsweep.queue.memory.state import locked
from rowsweep.queue.stores.holds import Pause, check_pair

if TYPE_CHECKING:
    import builtins

    from rowsweep.queue.memory.state import State


class MemoryPauses:
    """Keep pauses in a dict, by queue and name."""

    def __init__(self, state: State) -> None:
        self._state = state

    @locked
    def pause(
        self, *, queue: str | None = None, name: str | None = None, reason: str | None = None, by: str | None = None
    ) -> Pause:
        """Hold a queue, a name, or a name on one queue from the next claim on."""
        check_pair(queue, name)
        made = Pause(queue=queue, name=name, paused_at=self._state.now(), paused_by=by, reason=reason)
        return self._state.pauses.setdefault((queue, name), made)

    @locked
    def resume(self, *, queue: str | None = None, name: str | None = None) -> bool:
        """Take away the pause of exactly this pair; its rows are due as they were."""
        check_pair(queue, name)
        if self._state.pauses.pop((queue, name), None) is None:
            return False
        for woken in {queue} if queue is not None else {job.queue for job in self._state.live_jobs()}:
            self._state.say(woken)
        return True

    @locked
    def list(self) -> builtins.list[Pause]:
        """Answer the pauses, the oldest first."""
        return sorted(self._state.pauses.values(), key=lambda pause: pause.paused_at)
