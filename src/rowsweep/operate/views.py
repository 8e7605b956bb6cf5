"""Frozen projections of what the queue keeps: what terminal, notebook and dashboards show."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from rowsweep.jobs.values.json_form import safe_json
from rowsweep.operate.pages import job_cursor

if TYPE_CHECKING:
    from rowsweep.queue.records import Job, JobState, QueueStats
    from rowsweep.queue.stores.holds import Pause
    from rowsweep.queue.stores.steps import Step, StepKind, StepStatus
    from rowsweep.queue.stores.workers import WorkerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Something shown; plain and JSON-safe through `as_json()`."""

    def as_json(self) -> dict[str, Any]:
        """Answer the view as plain JSON, instants as ISO 8601 text."""
        kind: Any = type(self)
        return cast("dict[str, Any]", safe_json({name: _plain(getattr(self, name)) for name in _names(kind)}))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView(View):
    """One job; `cursor` is its place in the list, for the page after or before it."""

    id: str
    name: str
    queue: str
    priority: int
    state: JobState
    input: Any
    idempotency_key: str
    tenant_id: str | None
    concurrency_key: str | None
    run_id: str
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
    cursor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView(View):
    """One stored step of a run."""

    name: str
    kind: StepKind
    status: StepStatus
    output: Any
    attempts: int
    error: str | None
    started_at: datetime
    completed_at: datetime | None
    wake_at: datetime | None
    event: str | None
    correlation_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView(View):
    """One queue's rows by state, each in exactly one bucket; `due` are those a worker could claim now.

    `ready` holds due `delayed` rows and those that back off; `oldest_ready_seconds` is how long the oldest due row has
    been due, None where none is.
    """

    queue: str
    ready: int
    delayed: int
    running: int
    suspended: int
    done: int
    failed: int
    dead: int
    cancelled: int
    due: int
    oldest_ready_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView(View):
    """One live worker, as it last announced itself."""

    id: str
    host: str
    pid: int
    app_version: str | None
    queues: tuple[str, ...]
    names: tuple[str, ...]
    concurrency: Any
    state: str
    in_flight: int
    processed: int
    interrupted: int
    wake: bool
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseView(View):
    """One pause: a queue, a name, or a name on one queue is held from the next claim on."""

    queue: str | None
    name: str | None
    paused_at: datetime
    paused_by: str | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeclaredView(View):
    """Rows of a queue that wait for a name which neither this process nor a live worker declares."""

    queue: str
    name: str
    waiting: int


def job_view(job: Job) -> JobView:
    """Answer the projection of a job."""
    return JobView(**_of(job, JobView, cursor=job_cursor(job)))


def step_view(step: Step) -> StepView:
    """Answer the projection of a step."""
    return StepView(**_of(step, StepView))


def queue_view(stats: QueueStats) -> QueueView:
    """Answer the projection of a queue's counts."""
    return QueueView(**_of(stats, QueueView))


def worker_view(info: WorkerInfo, seen_at: datetime) -> WorkerView:
    """Answer the projection of a worker's announcement."""
    return WorkerView(**_of(info, WorkerView, queues=tuple(info.queues), names=tuple(info.names), seen_at=seen_at))


def pause_view(pause: Pause) -> PauseView:
    """Answer the projection of a pause."""
    return PauseView(**_of(pause, PauseView))


@cache
def _names(view: type[View]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(view))


def _of(record: object, view: Any, **derived: Any) -> dict[str, Any]:
    """Answer the view's fields from the record's, ids as text, and what is derived."""
    return {name: _text_of_ids(getattr(record, name)) for name in _names(view) if name not in derived} | derived


def _text_of_ids(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
