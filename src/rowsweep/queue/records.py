"""What the queue keeps: jobs, claims, steps and ledger rows as frozen records."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from rowsweep.jobs.request import EnqueueResult, NewJob

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from rowsweep.jobs.values.json_form import Json
    from rowsweep.queue.shards import ShardFigures
    from rowsweep.telemetry.instruments import Depth

JobState = Literal["ready", "delayed", "running", "suspended", "done", "failed", "dead", "cancelled"]
StopReason = Literal["terminal", "attempts", "lapsed", "busy", "cancelled"]
StepKind = Literal["run", "sleep", "event", "checkpoint", "part"]
StepStatus = Literal["done", "failed", "waiting", "timed-out"]
SweepKind = Literal["backfill", "export", "purge"]
BackfillStatus = Literal["running", "paused", "done", "failed", "cancelled"]
Wanted = Literal["run", "pause", "cancel"]

LIVE_STATES: Final[tuple[JobState, ...]] = ("ready", "delayed", "running", "suspended")
FINISHED_STATES: Final[tuple[JobState, ...]] = ("done", "failed", "dead", "cancelled")
WAITING_STATES: Final[tuple[JobState, ...]] = ("ready", "delayed", "suspended")
JOB_STATES: Final[tuple[JobState, ...]] = LIVE_STATES + FINISHED_STATES
MOST_SAMPLES: Final = 240
BACKFILL_STATUSES: Final[tuple[BackfillStatus, ...]] = ("running", "paused", "done", "failed", "cancelled")

DEFAULT_QUEUE: Final = "default"
DEFAULT_VISIBILITY_SECONDS: Final = 30.0
LEASE_LAPSED_FINAL_ATTEMPT: Final = (
    "The lease lapsed on the final attempt: the worker stopped, or could not renew, before the run ended."
)
PAGE_DEFAULT: Final = 100
SAMPLE_SECONDS: Final = 15.0
MOST_COUNTED: Final = 1_000_000
MOST_SAMPLED: Final = 10_000

__all__ = [
    "BACKFILL_STATUSES",
    "DEFAULT_QUEUE",
    "DEFAULT_VISIBILITY_SECONDS",
    "FINISHED_STATES",
    "JOB_STATES",
    "LEASE_LAPSED_FINAL_ATTEMPT",
    "LIVE_STATES",
    "MOST_COUNTED",
    "MOST_SAMPLED",
    "PAGE_DEFAULT",
    "SAMPLE_SECONDS",
    "WAITING_STATES",
    "Backfill",
    "BackfillStatus",
    "BatchClose",
    "BatchClosed",
    "Claim",
    "ClaimOptions",
    "ClaimPass",
    "EnqueueResult",
    "Job",
    "JobFilter",
    "JobState",
    "Look",
    "NewBackfill",
    "NewJob",
    "QueueStats",
    "Recorded",
    "Step",
    "StepKind",
    "StepPut",
    "StepSleep",
    "StepStatus",
    "StopReason",
    "SweepKind",
    "SweepTotals",
    "Wanted",
    "WorkerInfo",
    "claim_of",
    "is_final_attempt",
]


# Neither is ever changed. They are not frozen, which takes eight times as long: every claimed job is one of each.
@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class Claim:
    """Name one claim of one job: what every fenced write must still match."""

    job_id: UUID
    worker_id: str
    claim: int


@dataclass(slots=True, unsafe_hash=True)
class Job:
    """One row of `x_jobs`; the fields are its columns, in the order every statement lists them."""

    id: UUID
    name: str
    queue: str
    priority: int
    state: JobState
    input: Any
    idempotency_key: str
    tenant_id: str | None
    concurrency_key: str | None
    run_id: UUID
    attempt: int
    max_attempts: int
    claims: int
    claimed_by: str | None
    visible_at: datetime | None
    run_at: datetime
    progress: Any
    result: Any
    last_error: str | None
    last_error_code: str | None
    stop_reason: str | None
    traceparent: str | None
    enqueued_by: str | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None


def claim_of(job: Job) -> Claim:
    """Answer the claim a running job is held under."""
    if job.claimed_by is None:
        msg = f"job {job.id} is {job.state}, nobody holds it"
        raise ValueError(msg)
    return Claim(job_id=job.id, worker_id=job.claimed_by, claim=job.claims)


def is_final_attempt(job: Job) -> bool:
    """Say whether the attempt under way is the last one the job has."""
    return job.attempt >= job.max_attempts


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOptions:
    """Bound one claim pass over exactly one queue.

    `names` are the jobs this process has declared, `drop_exhausted` those of them without a dead letter. `busy` are
    caps that were just seen full, a plain one by `(name, None)`, a keyed one by `(name, key)`: their rows are left
    out, and lapsed ones only buried. `rooms` bounds the rows of a name in this pass, `key_rooms` those of one key.
    `starts`, as a pass less than a second ago answered it, lets this one begin behind what was passed over there.
    With `lapsed` the pass first re-takes (or buries) running rows whose visibility has lapsed; a worker asks
    for it once a second and queue.
    """

    queues: Sequence[str]
    names: Sequence[str]
    worker_id: str
    limit: int
    visibility_seconds: float = DEFAULT_VISIBILITY_SECONDS
    drop_exhausted: Sequence[str] = ()
    busy: Sequence[tuple[str, str | None]] = ()
    rooms: Mapping[str, int] = field(default_factory=dict)
    key_rooms: Mapping[str, int] = field(default_factory=dict)
    starts: Json = None
    lapsed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPass:
    """What a claim pass brought: jobs to run, rows it buried, and when the next waiting row falls due.

    `starts` says where the next pass may begin, None where the driver always begins at the head.
    """

    jobs: list[Job]
    buried: list[Job] = field(default_factory=list)
    next_run_at: datetime | None = None
    starts: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What an idle worker's look saw: queues with due or lapsed rows, and when a row next falls due or may lapse.

    `depths` are a sample of every queue, each count stopping at 10,000; None where it was not this look's turn.
    """

    due_queues: list[str]
    next_run_in_seconds: float | None = None
    depths: Sequence[Depth] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """Count one queue's rows by state, each row in exactly one bucket; a due `delayed` row is `ready`."""

    queue: str
    ready: int = 0
    delayed: int = 0
    running: int = 0
    suspended: int = 0
    done: int = 0
    failed: int = 0
    dead: int = 0
    cancelled: int = 0
    due: int = 0
    oldest_ready_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Choose the rows of `list`; None means any.

    `id_prefix` is how an id begins, in hexadecimal digits with or without dashes; `created_from` is inclusive,
    `created_to` exclusive, both aware.
    """

    queue: str | None = None
    name: str | None = None
    state: JobState | None = None
    tenant_id: str | None = None
    run_id: UUID | None = None
    id_prefix: str | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One row of `x_job_steps`."""

    run_id: UUID
    name: str
    kind: StepKind
    status: StepStatus
    output: Any
    attempts: int
    error: str | None
    started_at: datetime
    completed_at: datetime | None
    wake_at: datetime | None = None
    event: str | None = None
    correlation_key: str | None = None


class Recorded(NamedTuple):
    """What a replay needs of a step that is stored; its output is read when it is asked for."""

    kind: StepKind
    status: StepStatus
    text: str | None

    @property
    def output(self) -> Any:
        """Answer the output, fresh for each reader."""
        return None if self.text is None else json.loads(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPut:
    """Write one step under a claim: the row appears, or is replaced in place.

    A `failed` put adds one to `attempts`; the other statuses leave what is counted.
    """

    run_id: UUID
    name: str
    kind: StepKind
    status: StepStatus
    output: Json = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSleep:
    """Ask under a claim whether a sleep is over; asked for the first time, it begins."""

    run_id: UUID
    name: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBackfill:
    """Open a ledger row; `status` is `running`, the counts are zero."""

    run_id: UUID
    name: str
    kind: SweepKind
    checksum: str
    environment: str
    app_version: str | None = None
    input: Json = None
    options: Json = None
    launched_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTotals:
    """Absolute figures of a sweep so far; writing the same ones twice changes nothing.

    `samples` replaces the stored series when given, `None` leaves it (and its TOAST value) alone.
    """

    rows: int
    written: int
    batches: int
    cursor: Json
    active_seconds: float
    samples: Json = None


class Behind(Protocol):
    """More that travels behind a closing statement on its connection, sent before that one's answer is read."""

    def send(self) -> None:
        """Send it; all of it is void where the statement fails."""

    def failed(self, error: Exception) -> None:
        """Learn that something of it failed, though the closing statement did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchClose:
    """Close one batch: fence, checkpoint and ledger in one statement, the batch's last.

    `expected` is the checkpoint the batch started from (None: none stored yet), so the same claim cannot commit
    one batch twice. `marker` is the transaction-local setting `rowsweep.batch` the batch was begun with: it is
    gone when the handler ended the transaction. `totals=None` stores the checkpoint and leaves the ledger's figures.
    `restarts` asks to count attempts anew; one in its first attempt, or that has closed a batch in this one, need not.
    One of several jobs of a run gives its own figures as `shard`, and no totals.
    `behind` is sent along with a close that moves the stored checkpoint (`is_plain`): such a one that may not commit
    fails its transaction, so that nothing behind it can take effect.
    """

    claim: Claim
    run_id: UUID
    step: str
    expected: Json
    value: Json
    totals: SweepTotals | None
    marker: str | None = None
    checksum: str | None = None
    restarts: bool = True
    shard: ShardFigures | None = None
    behind: Behind | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it only moves a checkpoint that is stored, and the ledger's figures."""
        moves = self.expected is not None and (self.totals is not None or self.shard is not None)
        return moves and not self.restarts and self.checksum is None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchClosed:
    """Answer a batch's close: the first false one says why it may not commit.

    `wanted` is None where the driver keeps no ledger row for the run. `options` are the row's, as tuned. With something
    `behind`, a close that may not commit answers neither `held` nor `expected`: its transaction cannot tell which.
    `reported` is False where a shard's figures have to wait for its next report, because another had the row.
    """

    open: bool
    held: bool
    expected: bool
    wanted: Wanted | None
    options: Any = None
    reported: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked of a run: its flag, and its options as tuned."""

    wanted: Wanted
    options: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """New options for a live run, and who asks; None leaves one as it is, the rate `none` lifts the limit."""

    rate: str | None = None
    batch_rows: int | None = None
    health: Any = None
    by: str | None = None

    def changes(self) -> dict[str, Any]:
        """Answer the options that change."""
        given = {"rate": self.rate, "batch_rows": self.batch_rows, "health": self.health}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """One row of `x_backfills`; the fields are its columns, and what is derived from the run's jobs.

    `live` says whether a job of the run is held under a lease that has not lapsed; `job_state`, `attempt`,
    `retry_at` and `max_attempts` are those of its first job (None once it was removed). `quiet_seconds` is how long ago
    the row was last written, by the database's clock.
    """

    run_id: UUID
    name: str
    kind: SweepKind
    checksum: str
    app_version: str | None
    environment: str
    status: BackfillStatus
    wanted: Wanted
    waiting_for: str | None
    rows: int
    written: int
    batches: int
    cursor: Any
    estimated_rows: int | None
    estimate_source: str | None
    active_seconds: float
    samples: Any
    shards: Any
    input: Any
    options: Any
    rejected_rows: int
    launched_by: str | None
    last_error: str | None
    last_error_code: str | None
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    live: bool
    job_id: UUID | None
    job_state: JobState | None
    attempt: int | None
    retry_at: datetime | None
    max_attempts: int | None
    quiet_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """What a worker announces of itself in `x_job_workers`."""

    id: str
    host: str
    pid: int
    app_version: str | None
    queues: Sequence[str]
    names: Sequence[str]
    concurrency: Json
    state: str
    in_flight: int
    processed: int
    interrupted: int
    wake: bool
