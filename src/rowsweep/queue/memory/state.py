"""The rows of the memory driver, the lock over them, and the fence every write asks."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from rowsweep.errors import LeaseLost
from rowsweep.queue.memory import jsonb
from rowsweep.queue.records import LIVE_STATES, WAITING_STATES
from rowsweep.queue.wake import SOON_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from uuid import UUID

    from rowsweep.clock import Clock
    from rowsweep.queue.memory.events.store import KeptEvent
    from rowsweep.queue.records import Claim, Job
    from rowsweep.queue.stores.counters import CounterBucket, CounterTier
    from rowsweep.queue.stores.holds import Pause, SlotHolder
    from rowsweep.queue.stores.ledger import Backfill
    from rowsweep.queue.stores.outbox import StagedJob
    from rowsweep.queue.stores.rejected import RejectedRow
    from rowsweep.queue.stores.schedules import Leadership
    from rowsweep.queue.stores.steps import Step
    from rowsweep.queue.stores.workers import WorkerInfo

_BACKFILL_JSON: Final = ("cursor", "samples", "shards", "input", "options")

Key = tuple[str, str, str]
CounterKey = tuple["CounterTier", "datetime", str]
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One announced worker."""

    info: WorkerInfo
    seen_at: datetime
    expires_at: datetime


@dataclass(slots=True)
class State:
    """Every row there is; JSON columns hold the text that `jsonb` would, so nothing kept is shared with a caller.

    `live` is the unique index over live jobs, by name, tenant and key.
    """

    clock: Clock
    lock: threading.RLock = field(default_factory=threading.RLock)
    jobs: dict[UUID, Job] = field(default_factory=dict)
    live: dict[Key, UUID] = field(default_factory=dict)
    steps: dict[tuple[UUID, str], Step] = field(default_factory=dict)
    ledger: dict[UUID, Backfill] = field(default_factory=dict)
    rejected: dict[UUID, tuple[RejectedRow, ...]] = field(default_factory=dict)
    workers: dict[str, WorkerRow] = field(default_factory=dict)
    watermarks: dict[str, datetime] = field(default_factory=dict)
    leaders: dict[str, Leadership] = field(default_factory=dict)
    slots: dict[tuple[str, int], SlotHolder] = field(default_factory=dict)
    pauses: dict[tuple[str | None, str | None], Pause] = field(default_factory=dict)
    counters: dict[CounterKey, CounterBucket] = field(default_factory=dict)
    events: dict[UUID, KeptEvent] = field(default_factory=dict)
    outbox: dict[UUID, StagedJob] = field(default_factory=dict)
    event_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    max_events: int = 10_000
    sampled_at: datetime | None = None
    listeners: list[Callable[[str], None]] = field(default_factory=list)

    def say(self, word: str) -> None:
        """Send a word to everybody who listens; what it is about shows once the lock is free."""
        for listener in list(self.listeners):
            listener(word)

    def now(self) -> datetime:
        """Answer the clock's now: what "the database's now" is here."""
        return self.clock.now()

    def snapshot(self) -> Callable[[], None]:
        """Copy the tables (rows are frozen, so their dicts suffice) and answer what puts them back."""
        kept = tuple(dict(table) for table in self._tables())

        def restore() -> None:
            for table, rows in zip(self._tables(), kept, strict=True):
                table.clear()
                table.update(rows)

        return restore

    def write(self, job: Job, *, wakes: bool = True) -> None:
        """Put a job's row, keeping the unique index over live rows true; wakes for what is due soon."""
        self.jobs[job.id] = job
        if wakes and self.listeners and self._is_due_soon(job):
            self.say(job.queue)
        if job.state in LIVE_STATES:
            self.live[key_of(job)] = job.id
        elif self.live.get(key_of(job)) == job.id:
            del self.live[key_of(job)]

    def remove(self, job: Job) -> None:
        """Delete a job's row."""
        del self.jobs[job.id]
        if self.live.get(key_of(job)) == job.id:
            del self.live[key_of(job)]

    def remove_steps(self, run_id: UUID, *, suffix: str = "") -> None:
        """Delete a run's steps, or those of it whose names end so."""
        for key in [key for key in self.steps if key[0] == run_id and key[1].endswith(suffix)]:
            del self.steps[key]

    def held(self, claim: Claim) -> Job | None:
        """Answer the job's row where it still runs under exactly this claim."""
        job = self.jobs.get(claim.job_id)
        fits = job is not None and job.state == "running"
        return job if fits and job and (job.claimed_by, job.claims) == (claim.worker_id, claim.claim) else None

    def live_jobs(self) -> list[Job]:
        """Answer the rows that are not finished."""
        return [self.jobs[job_id] for job_id in self.live.values()]

    def is_paused(self, job: Job) -> bool:
        """Say whether a pause of its queue, of its name, or of both holds a job."""
        return bool(self.pauses.keys() & {(job.queue, None), (None, job.name), (job.queue, job.name)})

    def jobs_of(self, run_id: UUID) -> list[Job]:
        """Answer a run's jobs, the first one first."""
        mine = (job for job in self.jobs.values() if job.run_id == run_id)
        return sorted(mine, key=lambda job: (job.created_at, job.id))

    def _is_due_soon(self, job: Job) -> bool:
        return job.state in WAITING_STATES and job.run_at < self.now() + timedelta(seconds=SOON_SECONDS)

    def _tables(self) -> tuple[dict[Any, Any], ...]:
        return (
            self.watermarks,
            self.leaders,
            self.jobs,
            self.live,
            self.steps,
            self.ledger,
            self.rejected,
            self.workers,
            self.slots,
            self.pauses,
            self.counters,
            self.events,
            self.outbox,
        )


def key_of(job: Job) -> Key:
    """Answer what is unique among live jobs."""
    return job.name, job.tenant_id or "", job.idempotency_key


def job_answer(job: Job) -> Job:
    """Answer a job's row with its JSON columns read."""
    return replace(job, input=jsonb.read(job.input), progress=jsonb.read(job.progress), result=jsonb.read(job.result))


def step_answer(step: Step) -> Step:
    """Answer a step's row with its output read."""
    return replace(step, output=jsonb.read(step.output))


def backfill_answer(row: Backfill) -> Backfill:
    """Answer a ledger row with its JSON columns read."""
    read: dict[str, Any] = {name: jsonb.read(getattr(row, name)) for name in _BACKFILL_JSON}
    return replace(row, **read)


def lease_lost(claim: Claim) -> LeaseLost:
    """Answer the refusal of a write whose claim is gone."""
    return LeaseLost(
        f"worker {claim.worker_id} no longer holds claim {claim.claim} of job {claim.job_id}; nothing was written.",
        fix=f"rowsweep jobs show {claim.job_id}",
        meta={"job_id": str(claim.job_id), "worker_id": claim.worker_id, "claim": claim.claim},
    )


class _HasState(Protocol):
    @property
    def _state(self) -> State: ...


S = TypeVar("S", bound=_HasState)


def locked(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Run a store's method under the one lock: each call is one statement."""

    @wraps(method)
    def under_lock(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._state.lock:
            return method(self, *args, **kwargs)

    return under_lock
