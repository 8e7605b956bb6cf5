"""A driver with workers over it, and hands to move what a test must move."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, cast
from uuid import UUID

import psycopg

from rowsweep.clock import Clock, SystemClock
from rowsweep.errors import DriverUnavailable
from rowsweep.jobs.handle import JobHandle
from rowsweep.jobs.request import EnqueueResult, NewJob
from rowsweep.lifecycle import Lifecycle
from rowsweep.queue.contract import Driver, JobStore, Stores
from rowsweep.queue.memory.driver import MemoryDriver
from rowsweep.queue.records import Claim, Job
from rowsweep.queue.stores.steps import Step
from rowsweep.timers import RealTimers
from rowsweep.worker.worker import Worker

PATIENCE_SECONDS = 45.0
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


class Hands(Protocol):
    """What a test can do behind the driver's back."""

    def edit(self, job_id: UUID, **columns: Any) -> None:
        """Set columns of a job's row."""


class MemoryHands:
    """Reach into the memory driver's rows."""

    def __init__(self, driver: MemoryDriver) -> None:
        self._state = driver._state

    def edit(self, job_id: UUID, **columns: Any) -> None:
        with self._state.lock:
            self._state.write(replace(self._state.jobs[job_id], **columns))


class PostgresHands:
    """Update rows over a connection of the test's own."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def edit(self, job_id: UUID, **columns: Any) -> None:
        assignments = psycopg.sql.SQL(", ").join(
            psycopg.sql.SQL("{} = {}").format(psycopg.sql.Identifier(name), psycopg.sql.Placeholder(name))
            for name in columns
        )
        statement = psycopg.sql.SQL("update x_jobs set {} where id = %(id)s").format(assignments)
        self.connection.execute(statement, {"id": job_id, **columns})


class ShopEnqueuer:
    """Put enqueues on the driver, as the connected app would."""

    def __init__(self, driver: Driver) -> None:
        self.actor: str | None = "test"
        self._driver = driver

    def enqueue(self, requests: Sequence[NewJob], *, tx: Any = None, outbox: bool = False) -> list[EnqueueResult]:
        from rowsweep.jobs import ambient

        joined = tx if tx is not None else ambient.open_transaction()
        stores = self._driver.stores() if joined is None else self._driver.join(joined)
        return stores.jobs.enqueue(requests)


@dataclass
class Shop:
    """A driver under test and the workers a test started over it."""

    kind: str
    driver: Driver
    hands: Hands
    workers: list[Worker] = field(default_factory=list)

    def worker(self, *, driver: Any = None, clock: Clock | None = None, **given: Any) -> Worker:
        """Make a worker that looks often; it is stopped after the test."""
        often: dict[str, Any] = {"poll": "50ms", "poll_with_wake": "50ms", "poll_floor": "10ms"}
        own: dict[str, Any] = {"lifecycle": Lifecycle(), "context": lambda: None}
        made = Worker(driver=driver or self.driver, clock=clock or SystemClock(), **(often | own | given))
        self.workers.append(made)
        return made

    def running(self, **given: Any) -> Worker:
        """Start a worker."""
        made = self.worker(**given)
        made.start()
        return made

    def enqueue(self, handle: JobHandle[Any, Any], value: Any = None, **given: Any) -> UUID:
        """Enqueue one job and answer its id."""
        return handle.enqueue(value, **given).id

    def job(self, job_id: UUID) -> Job:
        """Read one job that must be there."""
        inspection = self.driver.stores().inspection
        assert inspection is not None
        found = inspection.get(job_id)
        assert found is not None
        return found

    def steps(self, job_id: UUID) -> dict[str, Step]:
        """Read the steps of a job's run by name."""
        return {step.name: step for step in self.driver.stores().steps.list(self.job(job_id).run_id)}

    def until_state(self, job_id: UUID, *states: str) -> Job:
        """Wait for a job to be in one of the states."""
        until(lambda: self.job(job_id).state in states, lambda: f"{states}: {self.job(job_id)}")
        return self.job(job_id)

    def make_due(self, job_id: UUID) -> None:
        """Let a waiting job be due now."""
        self.hands.edit(job_id, run_at=LONG_AGO)

    def lapse(self, job_id: UUID) -> None:
        """Let a running job's visibility have passed."""
        self.hands.edit(job_id, visible_at=datetime.now(UTC) - timedelta(seconds=60))

    def steal(self, job_id: UUID, *, worker_id: str = "thief") -> Claim:
        """Give a running job to another worker, as a claim of its lapsed row would."""
        job = self.job(job_id)
        assert job.state == "running"
        later = datetime.now(UTC) + timedelta(seconds=60)
        taken = {"claimed_by": worker_id, "claims": job.claims + 1, "attempt": job.attempt + 1, "visible_at": later}
        self.hands.edit(job_id, **taken)
        return Claim(job_id=job_id, worker_id=worker_id, claim=job.claims + 1)


class WatchedTimers(RealTimers):
    """Timers that wait for real, and tell of how many seconds the claim loop's sleep is; none while it is awake.

    It tells before the loop lets go of its condition, so whoever was told pokes a loop that sleeps.
    """

    def __init__(self) -> None:
        self.asleep_seconds: float | None = None
        self.longest_seconds = 0.0
        self.sleeps = 0

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        if threading.current_thread().name != "rowsweep-claims" or seconds is None:
            super().wait(condition, seconds)
            return
        self.longest_seconds = max(self.longest_seconds, seconds)
        self.asleep_seconds = seconds
        self.sleeps += 1
        super().wait(condition, seconds)
        self.asleep_seconds = None

    def until_asleep(self, seconds: float) -> None:
        """Wait for a sleep of so many seconds at least."""
        until(lambda: (self.asleep_seconds or 0.0) >= seconds, lambda: f"a sleep of {seconds:g} s: {vars(self)}")


class BrokenDriver:
    """A driver whose job store refuses the calls named in `broken`, and notes what is asked of it."""

    def __init__(self, driver: Driver, *broken: str) -> None:
        self._driver = driver
        self.broken = set(broken)
        self.error: Callable[[], Exception] = lambda: DriverUnavailable("the database is gone", fix="wait")
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def control(self) -> Stores:
        """Answer the control stores with the job store in between."""
        stores = self._driver.control()
        return replace(stores, jobs=cast("JobStore", BrokenJobs(stores.jobs, self)))

    def calls(self, name: str) -> list[tuple[Any, ...]]:
        """Answer the arguments of every call of that name so far."""
        return [arguments for asked, arguments, _ in list(self.asked) if asked == name]


class DeafDriver(BrokenDriver):
    """A driver that has no wake to give."""

    def listen(self) -> None:
        """Answer none."""


class BrokenJobs:
    """Stand before a job store."""

    def __init__(self, jobs: JobStore, owner: BrokenDriver) -> None:
        self._jobs = jobs
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **given: Any) -> Any:
            self._owner.asked.append((name, arguments, given))
            if name in self._owner.broken:
                raise self._owner.error()
            return getattr(self._jobs, name)(*arguments, **given)

        return call


def until(holds: Callable[[], bool], what: Callable[[], str] | str = "the condition") -> None:
    """Poll until something holds; fail when it does not in time."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > give_up_at:
            raise AssertionError(f"never came: {what if isinstance(what, str) else what()}")
        time.sleep(0.005)


def logged(records: Sequence[logging.LogRecord], event: str) -> list[dict[str, Any]]:
    """Answer the fields of every log line of one event."""
    return [getattr(record, "fields", {}) for record in list(records) if record.getMessage() == event]
