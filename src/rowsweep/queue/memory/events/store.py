"""Events in memory: kept, found by the waits that ask, and what their publication makes due."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from rowsweep.options import row_count
from rowsweep.queue.memory import jsonb
from rowsweep.queue.memory.state import locked
from rowsweep.queue.stores.events import Event, Published

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterable
    from datetime import datetime

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.records import Job
    from rowsweep.queue.stores.events import NewEvent
    from rowsweep.queue.stores.steps import Step


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """One event, and which in the order of publication it was: no clock that is set back can change that."""

    number: int
    event: Event

    def is_for(self, step: Step, since: datetime, asked_after: int) -> bool:
        """Say whether it answers a wait that asked behind so many events."""
        fits = (self.event.name, self.event.key) == (step.event, step.correlation_key)
        return fits and (self.event.published_at >= since or self.number > asked_after)


class MemoryEvents:
    """Keep events in a dict, the oldest of too many dropped."""

    def __init__(self, state: State) -> None:
        self._state = state

    @locked
    def publish(self, event: NewEvent) -> Published:
        """Store the event and make every run parked on its name and key due; what has expired goes."""
        state, now = self._state, self._state.now()
        self.purge_expired(now)
        kept = Event(
            id=event.id,
            name=event.name,
            key=event.key,
            payload=jsonb.bind(event.payload),
            published_at=now,
            expires_at=now + timedelta(seconds=event.ttl_seconds),
        )
        state.events[event.id] = KeptEvent(next(state.event_numbers), kept)
        for oldest in list(state.events)[: max(len(state.events) - state.max_events, 0)]:
            del state.events[oldest]
        waiting = [step for step in state.steps.values() if _waits_for(step, event.name, event.key)]
        return Published(event=event_answer(kept), due_queues=wake(state, waiting, now))

    @locked
    def find(self, name: str, *, key: str | None = None, since: datetime) -> Event | None:
        """Answer the earliest live event of this name and key since an instant."""
        fitting = [event for event in self._live() if (event.name, event.key) == (name, key)]
        return earliest(event for event in fitting if event.published_at >= since)

    @locked
    def list(self, *, name: str | None = None, key: str | None = None, limit: int = 1_000) -> builtins.list[Event]:
        """Answer live events, newest first."""
        row_count(limit)
        chosen = [event for event in self._live() if name in (None, event.name) and key in (None, event.key)]
        chosen.sort(key=lambda event: (event.published_at, event.id), reverse=True)
        return [event_answer(event) for event in chosen[:limit]]

    @locked
    def purge_expired(self, at: datetime | None = None) -> int:
        """Delete what had expired at an instant."""
        instant = at or self._state.now()
        gone = [kept.event.id for kept in self._state.events.values() if kept.event.expires_at <= instant]
        for event_id in gone:
            del self._state.events[event_id]
        return len(gone)

    @locked
    def now(self) -> datetime:
        """Answer the clock."""
        return self._state.now()

    def _live(self) -> builtins.list[Event]:
        now = self._state.now()
        return [kept.event for kept in self._state.events.values() if kept.event.expires_at > now]


def answer_to(state: State, step: Step, since: datetime, asked_after: int) -> Event | None:
    """Answer the earliest live event that a wait was for."""
    now = state.now()
    live = (kept for kept in state.events.values() if kept.event.expires_at > now)
    return earliest(kept.event for kept in live if kept.is_for(step, since, asked_after))


def poll(state: State, names: Iterable[str]) -> builtins.list[str]:
    """Make the parked runs of these names due whose event has come; answer their queues."""
    mine = {job.run_id for job in state.live_jobs() if job.name in names and job.state == "suspended"}
    return wake(
        state, [step for step in state.steps.values() if step.run_id in mine and has_come(state, step)], state.now()
    )


def wake_parked(state: State, job: Job, now: datetime) -> None:
    """Make a job due that has just parked on an event which came on the way."""
    wake(state, [step for step in state.steps.values() if step.run_id == job.run_id and has_come(state, step)], now)


def has_come(state: State, step: Step) -> bool:
    """Say whether the event that a stored wait is for is there."""
    return step.status == "waiting" and step.event is not None and answer_to(state, step, *asked_at(step)) is not None


def asked_at(step: Step) -> tuple[datetime, int]:
    """Answer when a stored wait first asked, by the clock and by the events before it."""
    asked = jsonb.read(step.output)
    return step.started_at, asked["snapshot"] if isinstance(asked, dict) else 0


def wake(state: State, waiting: Iterable[Step], now: datetime) -> builtins.list[str]:
    """Make the parked jobs of these waits due now; answer their queues."""
    runs = {step.run_id for step in waiting}
    mine = [job for job in state.live_jobs() if job.run_id in runs and job.state == "suspended" and job.run_at > now]
    for job in mine:
        state.write(replace(job, run_at=now, updated_at=now))
    return sorted({job.queue for job in mine})


def earliest(events: Iterable[Event]) -> Event | None:
    """Answer the first by publication."""
    found = min(events, key=lambda event: (event.published_at, event.id), default=None)
    return None if found is None else event_answer(found)


def event_answer(event: Event) -> Event:
    """Answer an event with its payload read."""
    return replace(event, payload=jsonb.read(event.payload))


def _waits_for(step: Step, name: str, key: str | None) -> bool:
    return step.status == "waiting" and (step.event, step.correlation_key) == (name, key)
