"""Watermarks and the leader's lease in memory."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rowsweep.queue.memory.jobs import MemoryJobs
from rowsweep.queue.memory.state import locked
from rowsweep.queue.stores.schedules import Leadership

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from rowsweep.jobs.request import EnqueueResult
    from rowsweep.queue.memory.state import State
    from rowsweep.queue.stores.schedules import ScheduledFire


class MemorySchedules:
    """Keep a watermark a task in a dict."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._jobs = MemoryJobs(state)

    @locked
    def last_fired_at(self, task: str) -> datetime | None:
        """Answer a task's watermark."""
        return self._state.watermarks.get(task)

    @locked
    def watermarks(self) -> Mapping[str, datetime]:
        """Answer every task's watermark."""
        return dict(self._state.watermarks)

    @locked
    def mark_fired(self, task: str, at: datetime) -> datetime:
        """Arm a task that is seen for the first time; answer the watermark that stands."""
        return self._state.watermarks.setdefault(task, at)

    @locked
    def fire(self, fire: ScheduledFire) -> list[EnqueueResult | None] | None:
        """Move the watermark and insert the jobs, or do nothing where it is another."""
        former = self._state.watermarks.get(fire.task)
        if former is None or former >= fire.occurrence_at or fire.former_at not in (None, former):
            return None
        results = self._jobs.enqueue(fire.jobs)
        self._state.watermarks[fire.task] = max(fire.watermark_at, fire.occurrence_at)
        return list(results)


class MemoryLeader:
    """Keep one expiring lease a name in a dict."""

    def __init__(self, state: State) -> None:
        self._state = state

    @locked
    def acquire(self, name: str, holder: str, *, lease_seconds: float) -> bool:
        """Take the lease where it is free or expired, or renew the holder's own."""
        now, held = self._state.now(), self._state.leaders.get(name)
        if held is not None and held.holder != holder and held.expires_at > now:
            return False
        since = held.acquired_at if held is not None and held.holder == holder else now
        expires_at = now + timedelta(seconds=lease_seconds)
        self._state.leaders[name] = Leadership(name=name, holder=holder, acquired_at=since, expires_at=expires_at)
        return True

    @locked
    def release(self, name: str, holder: str) -> bool:
        """Give the holder's lease back."""
        held = self._state.leaders.get(name)
        if held is None or held.holder != holder:
            return False
        del self._state.leaders[name]
        return True

    @locked
    def get(self, name: str) -> Leadership | None:
        """Answer who holds the lease, None where nobody does."""
        held = self._state.leaders.get(name)
        return held if held is not None and held.expires_at > self._state.now() else None
