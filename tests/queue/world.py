"""One driver under test, with hands to put jobs into it and to let its time pass."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar
from uuid import UUID

from rowsweep.jobs.attempts.failure import Failure
from rowsweep.jobs.request import NewJob
from rowsweep.queue.contract import Driver, InspectionStore, JobStore, SteeringStore, Transaction
from rowsweep.queue.records import Claim, ClaimOptions, ClaimPass, Job, claim_of
from rowsweep.queue.stores.counters import CounterBucket, CounterStore
from rowsweep.queue.stores.events import Event, EventStore, NewEvent, Published, StepWait
from rowsweep.queue.stores.holds import PauseStore, SlotStore
from rowsweep.queue.stores.ledger import Backfill, BatchClose, LedgerStore, NewBackfill, SweepTotals
from rowsweep.queue.stores.outbox import OutboxStore
from rowsweep.queue.stores.rejected import RejectedStore
from rowsweep.queue.stores.shards import ShardStore
from rowsweep.queue.stores.steps import Step, StepPut, StepStore
from rowsweep.queue.stores.workers import WorkerInfo, WorkerStore
from rowsweep.queue.verdicts import Bury, Done, Drop, Park, Settlement, Verdict

ERROR = Failure(text="ValueError: no", code="X_TIMEOUT", stop_reason="attempts")
T = TypeVar("T")
_numbers = itertools.count(1)


def fresh_id() -> UUID:
    """Answer an id greater than all before it, as UUIDv7s are; ties in time are then broken the same way everywhere."""
    return UUID(int=(0x0190 << 112) | (7 << 76) | (2 << 62) | next(_numbers))


class Hands(Protocol):
    """What a test can do behind a driver's back."""

    def now(self) -> datetime:
        """Answer the driver's now."""

    def pass_time(self, seconds: float) -> None:
        """Let time pass for every row there is."""

    def edit(self, job_id: UUID, **columns: Any) -> None:
        """Set columns of a job's row."""

    def put_counter(self, row: CounterBucket, *, shard: int = 0) -> None:
        """Put a counter's row."""


@dataclass
class World:
    """A driver that holds no rows, and the shorthands that the tests are written in."""

    driver: Driver
    hands: Hands
    few: bool = False
    """Claim, where no cap is named, by the way that is quicker over few live rows."""

    @property
    def jobs(self) -> JobStore:
        return self.driver.stores().jobs

    @property
    def steps(self) -> StepStore:
        return self.driver.stores().steps

    @property
    def ledger(self) -> LedgerStore:
        return _present(self.driver.stores().ledger)

    @property
    def rejected(self) -> RejectedStore:
        return _present(self.driver.stores().rejected)

    @property
    def events(self) -> EventStore:
        return _present(self.driver.stores().events)

    @property
    def inspection(self) -> InspectionStore:
        return _present(self.driver.stores().inspection)

    @property
    def steering(self) -> SteeringStore:
        return _present(self.driver.stores().steering)

    @property
    def shards(self) -> ShardStore:
        return _present(self.driver.stores().shards)

    @property
    def workers(self) -> WorkerStore:
        return _present(self.driver.stores().workers)

    @property
    def slots(self) -> SlotStore:
        return _present(self.driver.stores().slots)

    @property
    def counters(self) -> CounterStore:
        return _present(self.driver.stores().counters)

    @property
    def pauses(self) -> PauseStore:
        return _present(self.driver.stores().pauses)

    @property
    def outbox(self) -> OutboxStore:
        return _present(self.driver.stores().outbox)

    def enqueue(self, name: str = "mail", **changes: Any) -> UUID:
        """Insert one job and answer the id that stands for it."""
        return self.jobs.enqueue([new_job(name, **changes)])[0].id

    def claim(self, *names: str, queue: str = "default", worker: str = "w1", limit: int = 10, **more: Any) -> ClaimPass:
        """Claim for the names (`mail` where none is given)."""
        few = self.few and not more.keys() & {"busy", "rooms", "key_rooms"}
        given = {"few": few, **more}
        return self.jobs.claim(
            ClaimOptions(queues=[queue], names=names or ("mail",), worker_id=worker, limit=limit, **given)
        )

    def take(self, name: str = "mail", **more: Any) -> Job:
        """Claim exactly one job."""
        (job,) = self.claim(name, limit=1, **more).jobs
        return job

    def running(self, name: str = "mail", **changes: Any) -> Job:
        """Enqueue one job and claim it."""
        job_id = self.enqueue(name, **changes)
        job = self.take(name)
        assert job.id == job_id
        return job

    def settle(self, job: Job | Claim, verdict: Verdict, **more: Any) -> bool | None:
        """End one claim."""
        claim = claim_of(job) if isinstance(job, Job) else job
        (answer,) = self.jobs.settle([Settlement(claim=claim, verdict=verdict, **more)])
        return answer

    def job(self, job_id: UUID) -> Job:
        """Read one job that must be there."""
        return _present(self.inspection.get(job_id))

    def row(self, run_id: UUID) -> Backfill:
        """Read one ledger row that must be there."""
        return _present(self.ledger.get(run_id))

    def sweep(self, name: str = "totals", **changes: Any) -> Job:
        """Open a ledger row and claim its one job."""
        job = self.running(name, **changes)
        self.ledger.start(new_backfill(job.run_id, name))
        return job

    def in_state(self, state: str, **changes: Any) -> UUID:
        """Bring one `mail` job into a state and answer its id."""
        return bring_into(self, state, **changes)

    def publish(self, name: str = "paid", **changes: Any) -> Published:
        """Publish one event."""
        return self.events.publish(new_event(name, **changes))

    def wait(self, job: Job, name: str = "wait", **changes: Any) -> Step:
        """Ask whether a job's wait is over."""
        given: dict[str, Any] = {"event": "paid", "key": None, "timeout_seconds": 600.0}
        return self.steps.wait(StepWait(run_id=job.run_id, name=name, **(given | changes)), claim_of(job))

    def parked(self, **changes: Any) -> Job:
        """Enqueue a `mail` job, begin a wait in it and park it; answer it as it was claimed."""
        job = self.running()
        step = self.wait(job, **changes)
        assert step.status == "waiting"
        assert self.settle(job, Park(wake_at=step.wake_at)) is True
        return job

    def joined(self, tx: Transaction) -> JobStore:
        """Answer the job store that joins an open transaction from outside."""
        return self.driver.join(tx if tx.connection is None else tx.connection).jobs


def new_job(name: str = "mail", **changes: Any) -> NewJob:
    """Ask for a job whose key is its own."""
    job_id = changes.pop("id", None) or fresh_id()
    given: dict[str, Any] = {"queue": "default", "input": None, "idempotency_key": str(job_id), "max_attempts": 3}
    return NewJob(id=job_id, run_id=changes.pop("run_id", None) or fresh_id(), name=name, **(given | changes))


def new_backfill(run_id: UUID, name: str = "totals", **changes: Any) -> NewBackfill:
    """Ask for a ledger row."""
    given: dict[str, Any] = {"kind": "backfill", "checksum": "c1", "environment": "test"}
    return NewBackfill(run_id=run_id, name=name, **(given | changes))


def totals(rows: int, **changes: Any) -> SweepTotals:
    """Answer the figures of a sweep that is `rows` far."""
    given: dict[str, Any] = {"written": rows, "batches": 1, "cursor": [str(rows)], "active_seconds": 1.5}
    return SweepTotals(rows=rows, **(given | changes))


def batch_close(job: Job, *, expected: Any = None, value: Any = "1", **changes: Any) -> BatchClose:
    """Ask to close a batch of a sweep's job."""
    given: dict[str, Any] = {"claim": claim_of(job), "run_id": job.run_id, "step": "sweep:pages", "totals": totals(1)}
    return BatchClose(expected=expected, value=value, **(given | changes))


def step_put(job: Job, name: str = "one", **changes: Any) -> StepPut:
    """Ask for a step that is done."""
    given: dict[str, Any] = {"kind": "run", "status": "done"}
    return StepPut(run_id=job.run_id, name=name, **(given | changes))


def new_event(name: str = "paid", **changes: Any) -> NewEvent:
    """Ask for an event that lives for an hour."""
    given: dict[str, Any] = {"key": None, "payload": None, "ttl_seconds": 3600.0}
    return NewEvent(id=fresh_id(), name=name, **(given | changes))


def event_in(step: Step) -> Event:
    """Answer the event that ended a wait."""
    assert step.status == "done"
    return Event.of(step.output)


def worker_info(worker_id: str, **changes: Any) -> WorkerInfo:
    """Answer what a worker says of itself."""
    given: dict[str, Any] = {
        "host": "box",
        "pid": 42,
        "app_version": "1.0",
        "queues": ["default"],
        "names": ["mail"],
        "concurrency": {"default": 8},
        "state": "running",
        "in_flight": 2,
        "processed": 10,
        "interrupted": 1,
        "wake": True,
    }
    return WorkerInfo(id=worker_id, **(given | changes))


def ids_of(jobs: Sequence[Job]) -> list[UUID]:
    """Answer the jobs' ids in their order."""
    return [job.id for job in jobs]


def is_near(instant: datetime | None, expected: datetime, *, within_seconds: float = 5.0) -> bool:
    """Say whether an instant is where it should be; a database's clock moves between two statements."""
    return instant is not None and abs(instant - expected) < timedelta(seconds=within_seconds)


def bring_into(world: World, state: str, **changes: Any) -> UUID:
    """Drive one `mail` job into the state by the verbs that lead there."""
    if state == "delayed":
        return world.enqueue(delay_seconds=600, **changes)
    if state == "ready":
        return world.enqueue(**changes)
    if state == "cancelled":
        job_id = world.enqueue(**changes)
        assert world.steering.cancel(job_id) is not None
        return job_id
    job = world.running(**changes)
    ends: dict[str, Verdict] = {
        "done": Done(),
        "dead": Bury(error=ERROR),
        "failed": Drop(error=ERROR),
        "suspended": Park(delay_seconds=600),
    }
    if state in ends:
        assert world.settle(job, ends[state]) is True
    return job.id


def _present(value: T | None) -> T:
    assert value is not None
    return value
