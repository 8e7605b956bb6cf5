"""The queue's contract: one small Protocol a store, filled in by every driver."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from uuid import UUID

    from rowsweep.jobs.request import EnqueueResult, NewJob
    from rowsweep.queue.records import Claim, ClaimOptions, ClaimPass, Job, JobFilter, QueueStats
    from rowsweep.queue.selection import BulkResult, JobPosition, JobSet
    from rowsweep.queue.stores.counters import CounterStore
    from rowsweep.queue.stores.events import EventStore
    from rowsweep.queue.stores.health import HealthStore
    from rowsweep.queue.stores.holds import PauseStore, SlotStore
    from rowsweep.queue.stores.ledger import LedgerStore
    from rowsweep.queue.stores.outbox import OutboxStore
    from rowsweep.queue.stores.rejected import RejectedStore
    from rowsweep.queue.stores.retention import RetentionStore
    from rowsweep.queue.stores.schedules import LeaderStore, ScheduleStore
    from rowsweep.queue.stores.shards import ShardStore
    from rowsweep.queue.stores.steps import StepStore
    from rowsweep.queue.stores.workers import WorkerStore
    from rowsweep.queue.verdicts import Settlement
    from rowsweep.queue.wake import WakeSource


class JobStore(Protocol):
    """Keep jobs so that none is lost and each claim is fenced."""

    def enqueue(self, jobs: Sequence[NewJob]) -> list[EnqueueResult]:
        """Insert the jobs, all or none, and answer one result each in order.

        A job whose key a live one of the same name and tenant already has is answered by that one.
        """

    def claim(self, options: ClaimOptions) -> ClaimPass:
        """Make due rows `running` under the worker, and re-take or bury lapsed ones.

        Raises NoQueuesNamed unless exactly one queue is named. `limit=0` sends nothing.
        """

    def settle(self, settlements: Sequence[Settlement], *, resent: bool = False) -> list[bool | None]:
        """End claims; True where it landed, False where the fence no longer fits, None where the row is locked.

        With `resent` a settlement whose row already stands as it asks, with its claim number and no holder, landed
        the first time and answers True.
        """

    def renew(self, claims: Sequence[Claim], *, visibility_seconds: float) -> list[bool | None]:
        """Extend claims from the database's now; answers as for `settle`."""

    def record_progress(self, claim: Claim, progress: Any) -> bool:
        """Store a run's progress under its claim; False where the fence no longer fits."""

    def stats(self) -> list[QueueStats]:
        """Count rows by queue and state."""


class InspectionStore(Protocol):
    """Read jobs."""

    def get(self, job_id: UUID) -> Job | None:
        """Answer one job."""

    def list(
        self,
        where: JobFilter,
        *,
        limit: int = 100,
        after: JobPosition | None = None,
        before: JobPosition | None = None,
    ) -> list[Job]:
        """Answer jobs newest first by `(created_at, id)`.

        With `after` those behind that position; with `before` those in front of it, the nearest ones. At most one of
        the two is given. `limit=0` sends nothing. Raises InvalidOption.
        """

    def dead_letters(self, *, limit: int = 100) -> builtins.list[Job]:
        """Answer dead jobs newest first by `updated_at`."""

    def undeclared(self, names: Sequence[str]) -> builtins.list[tuple[str, str, int]]:
        """Answer `(queue, name, rows)` of waiting rows that neither `names` nor a live worker declares."""


class SteeringStore(Protocol):
    """Move jobs by hand."""

    def cancel(self, job_id: UUID, *, reason: str | None = None) -> Job | None:
        """Stop a live job, its ledger row with it; None where it is not live."""

    def requeue(self, job_id: UUID, *, from_step: str | None = None) -> Job:
        """Make a finished job due now with its attempts counted anew, its ledger row `running` again.

        With `from_step` that step and every one that started later are dropped in the same statement, so the run does
        them again. Raises JobNotFound, NotRequeueable (also where the run has other jobs, with `from_step`),
        DuplicateJob, InvalidOption for a step the run has not stored.
        """

    def remove(self, job_id: UUID) -> bool:
        """Delete a job with its steps; False where unknown. Raises NotRemovable for a running one."""

    def promote(self, job_id: UUID) -> Job:
        """Make a job due now that waits for its time, delayed or backing off, and wake its queue.

        Raises NotPromotable, also for an unknown one.
        """

    def requeue_many(self, where: JobSet, *, limit: int = 1_000) -> BulkResult:
        """Requeue finished rows, the longest finished first; of several with one key the oldest.

        Rows whose key a live job holds stay as they are. This and the other bulk verbs move at most `limit` (0 to
        1,000) rows, pass over rows that others have locked, and count what is left in the same transaction; with
        `limit=0` they only count. Raises NotRequeueable for a live state, InvalidOption.
        """

    def remove_many(self, where: JobSet, *, limit: int = 1_000) -> BulkResult:
        """Delete rows that are not running, each as `remove` does. Raises NotRemovable for `running`, InvalidOption."""

    def promote_many(self, where: JobSet, *, limit: int = 1_000) -> BulkResult:
        """Make rows due now that wait for their time. Raises NotPromotable for other states, InvalidOption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """A driver's stores over one way of reaching them; a driver may leave out all but jobs and steps."""

    jobs: JobStore
    steps: StepStore
    ledger: LedgerStore | None = None
    rejected: RejectedStore | None = None
    inspection: InspectionStore | None = None
    steering: SteeringStore | None = None
    workers: WorkerStore | None = None
    schedules: ScheduleStore | None = None
    leader: LeaderStore | None = None
    slots: SlotStore | None = None
    pauses: PauseStore | None = None
    events: EventStore | None = None
    retention: RetentionStore | None = None
    health: HealthStore | None = None
    counters: CounterStore | None = None
    outbox: OutboxStore | None = None
    shards: ShardStore | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One unit of work: its stores, and the connection they share (None where the driver has none)."""

    stores: Stores
    connection: Any = None


class Driver(Protocol):
    """A place that keeps the queue."""

    @property
    def name(self) -> str:
        """The driver's name, as refusals show it."""

    @property
    def place(self) -> str:
        """Where the queue is kept, without a password."""

    def stores(self) -> Stores:
        """Answer stores that commit each call by itself, one round trip a call."""

    def control(self) -> Stores:
        """Answer the same stores over connections that no body can use up, with the keeper's statement timeout."""

    def transaction(self, *, settings: Mapping[str, str] | None = None) -> AbstractContextManager[Transaction]:
        """Open one transaction; it commits at the block's end and rolls back on any exception.

        `settings` are put in place for this transaction only (`set_config(…, true)`).
        """

    def join(self, connection: Any) -> Stores:
        """Answer the stores over a caller's connection, in the transaction open there."""

    def sweep_connection(self, wanted: Callable[[], None] | None = None) -> AbstractContextManager[Any]:
        """Lend a connection for a sweep's batches, in autocommit mode; closed, not returned, if left in a transaction.

        `wanted` is called, on whatever thread, where somebody waits for a connection while this one is lent.
        Raises NotImplementedByDriver where the driver keeps no tables.
        """

    def listen(self) -> WakeSource | None:
        """Open a session that hears of commits made elsewhere; None where there is none to be had.

        Raises DriverUnavailable. A third party's driver may lack this method.
        """

    def close(self) -> None:
        """Close every connection."""
