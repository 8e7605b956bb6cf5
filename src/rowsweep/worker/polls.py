"""Which jobs' parked waits the next look polls for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rowsweep.clock import Clock
    from rowsweep.jobs.handle import JobHandle


class EventPolls:
    """Remember when each job's waits were last polled for; a poll rides on a look and costs no statement of its own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._polled_at: dict[str, float] = {}
        self._shortest = float("inf")

    @property
    def shortest_seconds(self) -> float:
        """Answer the shortest interval that any of the jobs declared, which no two looks may be further apart than."""
        return self._shortest

    def take_due(self, handles: Mapping[str, JobHandle[Any, Any]]) -> list[str]:
        """Answer the names whose interval has passed, and count it anew."""
        now = self._clock.monotonic()
        every = {name: handle.options.event_poll.total_seconds() for name, handle in handles.items()}
        self._shortest = min(every.values(), default=float("inf"))
        due = [name for name, seconds in every.items() if now - self._polled_at.get(name, float("-inf")) >= seconds]
        self._polled_at.update(dict.fromkeys(due, now))
        return due
