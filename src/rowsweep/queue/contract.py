"""The queue's contract: one small Protocol a store, filled in by every driver."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from uuid import UUID

    from rowsweep.queue.counters import CounterStore
    from rowsweep.queue.events import EventStore, StepWait
    from rowsweep.queue.health import HealthStore
    from rowsweep.queue.holds import PauseStore, SlotStore
    from rowsweep.queue.outbox import OutboxStore
    from rowsweep.queue.records import (
        Asked,
        Backfill,
        BackfillStatus,
        BatchClose,
        BatchClosed,
        Claim,
        ClaimOptions,
        ClaimPass,
        EnqueueResult,
        Job,
        JobFilter,
        Look,
        NewBackfill,
        NewJob,
        QueueStats,
        Recorded,
        Step,
        StepPut,
        StepSleep,
        SweepKind,
        SweepTotals,
        Tuning,
        Wanted,
        WorkerInfo,
    )
    from rowsweep.queue.rejected import RejectedStore
    from rowsweep.queue.retention import RetentionStore
    from rowsweep.queue.schedules import LeaderStore, ScheduleStore
    from rowsweep.queue.selection import BulkResult, JobPosition, JobSet
    from rowsweep.queue.shards import ShardStore
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


class StepStore(Protocol):
    """Keep a run's steps; every write is fenced on the claim."""

    def get(self, run_id: UUID, name: str) -> Step | None:
        """Answer one step."""

    def list(self, run_id: UUID, *, kinds: Sequence[str] | None = None) -> list[Step]:
        """Answer a run's steps by `started_at`, then name."""

    def recorded(self, run_id: UUID) -> dict[str, Recorded]:
        """Answer a run's steps by name, as a replay needs them, in one statement; parts of an export are left out."""

    def put(self, step: StepPut, claim: Claim) -> Step:
        """Write a step and lock the job row; LeaseLost, and nothing written, where the fence no longer fits."""

    def sleep(self, step: StepSleep, claim: Claim) -> Step:
        """Store the sleep's `wake_at`, once, and say whether that has passed: `done`, else `waiting`.

        Fenced as `put` is. The database's clock decides.
        """

    def wait(self, step: StepWait, claim: Claim) -> Step:
        """Store what the wait is for, once, and say whether it has come.

        `done` with the event's record as output, `timed-out` once its `wake_at` passed without one, else `waiting`.
        The answer is the earliest live event published at or after the first asking, or by a transaction that was
        still open then. Fenced as `put` is; the database's clock decides.
        """

    def delete(self, run_id: UUID, name: str) -> bool:
        """Remove one step; False where there was none."""

    def guard(self, claim: Claim) -> bool:
        """Lock the job row until the transaction ends and say whether it still stands under this claim."""


class LedgerStore(Protocol):
    """Keep the ledger of sweeps: a report for people, never where a pass resumes."""

    def start(self, row: NewBackfill) -> Backfill:
        """Open the ledger row, or take up the one that is there with the new checksum and version.

        Of its options only `declared_rate` is taken anew: all else is the run's own.
        """

    def progress(self, close: BatchClose) -> BatchClosed:
        """Fence on the live claim, lock the job row, store the checkpoint and move the ledger, in that order.

        Nothing is written where the answer has a false part. A sweep that advances starts counting attempts again.
        """

    def describe(
        self,
        claim: Claim,
        run_id: UUID,
        *,
        estimate: tuple[int | None, str | None] | None,
        waiting_for: str | None,
        governed: Mapping[str, Any] | None = None,
    ) -> bool:
        """Note the estimate (where given) and what the pass waits for, under the claim.

        `governed` goes into the row's options under `governor`: the seconds in its `held` and `slowed` are added to
        those there, by name; its `signals` replace them.
        """

    def finish(self, claim: Claim, run_id: UUID, totals: SweepTotals, *, late: Mapping[str, Any] | None = None) -> bool:
        """Set `done` with the exact totals, under the claim; done again it changes nothing.

        `late` goes into the row's options: what is to be said of rows that were committed behind the sweep.
        """

    def get(self, run_id: UUID) -> Backfill | None:
        """Answer one row."""

    def list(
        self,
        *,
        name: str | None = None,
        status: BackfillStatus | None = None,
        kind: SweepKind | None = None,
        run_id_prefix: str | None = None,
        run_ids: Sequence[UUID] | None = None,
        limit: int = 100,
    ) -> list[Backfill]:
        """Answer rows, newest first; with `run_ids` those of them that there are, in one statement."""

    def steer(
        self, run_id: UUID, wanted: Wanted | Tuning, *, reason: str | None = None, by: str | None = None
    ) -> Backfill:
        """Pause, resume, cancel or tune a run in one transaction, from any process; twice is once.

        A pause keeps who asked, when and why in the row's options, under `paused`, until the next one.
        Raises SweepNotFound, SweepNotLive, NotCancellable.
        """

    def wanted(self, run_ids: Sequence[UUID]) -> Mapping[UUID, Asked]:
        """Answer what is asked of each run, in one statement."""


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


class WorkerStore(Protocol):
    """Keep the registry of workers, and an idle worker's look, which carries the announcement."""

    def look(
        self,
        *,
        queues: Sequence[str],
        names: Sequence[str],
        announce: WorkerInfo | None,
        poll: Sequence[str] = (),
        proof: str | None = None,
        sample: bool = False,
    ) -> Look:
        """Say which queues have something to claim; claims nothing, one statement. Says the word `proof` on the wake.

        With `sample` and an announcement, the first to ask after 15 s is also answered every queue's depth, as far as
        that is counted quickly.
        Runs named in `poll` that are parked on an event which has come are made due, and their queues answered: an
        event whose publication met neither the parked run nor the run on its way there.
        """

    def leave(self, worker_id: str) -> None:
        """Take a worker's row away."""

    def live(self) -> list[tuple[WorkerInfo, datetime]]:
        """Answer the workers whose rows have not expired, each with when it was last seen."""


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

    def sweep_connection(self) -> AbstractContextManager[Any]:
        """Lend a connection for a sweep's batches, in autocommit mode; closed, not returned, if left in a transaction.

        Raises NotImplementedByDriver where the driver keeps no tables.
        """

    def listen(self) -> WakeSource | None:
        """Open a session that hears of commits made elsewhere; None where there is none to be had.

        Raises DriverUnavailable. A third party's driver may lack this method.
        """

    def close(self) -> None:
        """Close every connection."""
