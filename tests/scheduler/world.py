"""A driver with schedulers over it, a clock that a test moves, and tasks to fire."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from rowsweep.clock import real_monotonic
from rowsweep.jobs.declare import job
from rowsweep.jobs.handle import JobHandle
from rowsweep.jobs.tasks.declare import task
from rowsweep.jobs.tasks.handle import TaskHandle
from rowsweep.lifecycle import Lifecycle
from rowsweep.queue.contract import Driver
from rowsweep.queue.records import Job, JobFilter
from rowsweep.queue.stores.schedules import ScheduleStore
from rowsweep.scheduler.dispatcher import Dispatched
from rowsweep.scheduler.scheduler import Scheduler
from rowsweep.testing.clock import FakeClock

START = datetime(2025, 1, 31, 8, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


@dataclass
class Tower:
    """One driver, one clock, and the schedulers that a test made over them."""

    driver: Driver
    clock: FakeClock = field(default_factory=lambda: FakeClock(START))
    made: list[Scheduler] = field(default_factory=list)

    def scheduler(self, **given: Any) -> Scheduler:
        """Make a scheduler with a lifecycle of its own; it is stopped after the test."""
        own: dict[str, Any] = {"driver": self.driver, "clock": self.clock, "lifecycle": Lifecycle(), "gap": "10ms"}
        self.made.append(Scheduler(**(own | given)))
        return self.made[-1]

    @property
    def state(self) -> ScheduleStore:
        store = self.driver.stores().schedules
        assert store is not None
        return store

    def jobs(self, name: str = "mail") -> list[Job]:
        """Answer the jobs of a name, the oldest first."""
        inspection = self.driver.stores().inspection
        assert inspection is not None
        return list(reversed(inspection.list(JobFilter(name=name), limit=200)))

    def inputs(self, name: str = "mail") -> list[str]:
        """Answer what the jobs of a name were given, the oldest first."""
        return [str(found.input) for found in self.jobs(name)]

    def at(self, text: str) -> None:
        """Move the clock to an instant such as `2025-01-31 09:00`."""
        self.clock.move_to(datetime.fromisoformat(text).replace(tzinfo=UTC))

    def pass_time(self, span: timedelta) -> None:
        """Move both clocks."""
        self.clock.advance(span)

    def close(self) -> None:
        """Stop every scheduler."""
        for scheduler in self.made:
            scheduler.stop(deadline_at=real_monotonic() + 5)


def mail() -> JobHandle[Any, Any]:
    """Declare the job that the tasks enqueue; its input is the occurrence."""
    return job("mail", send, tenant="none", input=str)


def send(_ctx: Any, _text: str) -> None:
    """Send nothing."""


def hourly(name: str = "hourly", **changes: Any) -> TaskHandle:
    """Declare a task that is due every hour and enqueues one mail about the occurrence."""
    letter = mail()
    given: dict[str, Any] = {"cron": "@hourly", "tz": "UTC", "enqueue": lambda at: [(letter, f"{at:%H:%M}")]}
    return task(name, **(given | changes))


def fired(dispatched: Sequence[Dispatched]) -> list[str]:
    """Answer the occurrences as `hourly 09:00`."""
    return [f"{one.task} {one.occurrence_at:%H:%M}" for one in dispatched]


class Gate:
    """A function that waits inside itself until it is let go, so that a round can be caught in the middle."""

    def __init__(self, answer: Callable[[datetime], Any]) -> None:
        self._answer = answer
        self.entered = threading.Event()
        self.go = threading.Event()

    def __call__(self, at: datetime) -> Any:
        self.entered.set()
        assert self.go.wait(30)
        return self._answer(at)


def wait_for(ask: Callable[[], Any], seconds: float = 10.0) -> Any:
    """Ask until the answer is true, and answer it."""
    give_up_at = real_monotonic() + seconds
    while real_monotonic() < give_up_at:
        if answer := ask():
            return answer
    raise AssertionError("it never came")
