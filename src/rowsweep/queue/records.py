"""What the queue keeps of jobs: their rows and states, claims of them, and how they are counted and chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from rowsweep.jobs.values.json_form import Json

JobState = Literal["ready", "delayed", "running", "suspended", "done", "failed", "dead", "cancelled"]
StopReason = Literal["terminal", "attempts", "lapsed", "busy", "cancelled"]

LIVE_STATES: Final[tuple[JobState, ...]] = ("ready", "delayed", "running", "suspended")
FINISHED_STATES: Final[tuple[JobState, ...]] = ("done", "failed", "dead", "cancelled")
WAITING_STATES: Final[tuple[JobState, ...]] = ("ready", "delayed", "suspended")
JOB_STATES: Final[tuple[JobState, ...]] = LIVE_STATES + FINISHED_STATES

DEFAULT_QUEUE: Final = "default"
DEFAULT_VISIBILITY_SECONDS: Final = 30.0
LEASE_LAPSED_FINAL_ATTEMPT: Final = (
    "The lease lapsed on the final attempt: the worker stopped, or could not renew, before the run ended."
)
PAGE_DEFAULT: Final = 100


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
    for it once a second and queue. With `few` the caller takes the queue for one of few live rows, and names no cap:
    where a driver is quicker over those it tries that first, from the head.
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
    few: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPass:
    """What a claim pass brought: jobs to run, rows it buried, and when the next waiting row falls due.

    `starts` says where the next pass may begin, None where the driver always begins at the head. `few` says that the
    quicker way of few rows did, and `read_seconds` how long the server then read the queue, its commit not counted.
    """

    jobs: list[Job]
    buried: list[Job] = field(default_factory=list)
    next_run_at: datetime | None = None
    starts: Json = None
    few: bool = False
    read_seconds: float = 0.0


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
