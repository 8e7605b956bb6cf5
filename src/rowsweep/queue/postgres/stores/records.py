"""Rows become records here and nowhere else: one function a store, refusing a status this version does not know."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn, get_args

from rowsweep.errors import UnknownRowStatus
from rowsweep.jobs.request import EnqueueResult
from rowsweep.queue.records import JOB_STATES, Job
from rowsweep.queue.stores.counters import CounterBucket, CounterTier
from rowsweep.queue.stores.events import Event
from rowsweep.queue.stores.ledger import BACKFILL_STATUSES, Backfill
from rowsweep.queue.stores.steps import Recorded, Step, StepStatus
from rowsweep.queue.stores.workers import WorkerInfo

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from rowsweep.queue.records import JobState

_STEP_STATUSES: Final = frozenset(get_args(StepStatus))
_JOB_STATES: Final = frozenset(JOB_STATES)
_JOB_COLUMNS: Final = len(fields(Job))
_BACKFILL_STATUSES: Final = frozenset(BACKFILL_STATUSES)


def job(row: Sequence[Any]) -> Job:
    """Answer a job from its columns in the record's order."""
    state = row[4]
    if state not in _JOB_STATES:
        _refuse("x_jobs", row[0], state)
    if row[15].tzinfo is UTC:  # as everywhere but on a caller's connection, and then all its instants are
        return Job(*row[:_JOB_COLUMNS])
    return Job(
        id=row[0],
        name=row[1],
        queue=row[2],
        priority=row[3],
        state=state,
        input=row[5],
        idempotency_key=row[6],
        tenant_id=row[7],
        concurrency_key=row[8],
        run_id=row[9],
        attempt=row[10],
        max_attempts=row[11],
        claims=row[12],
        claimed_by=row[13],
        visible_at=_utc(row[14]),
        run_at=_instant(row[15]),
        progress=row[16],
        result=row[17],
        last_error=row[18],
        last_error_code=row[19],
        stop_reason=row[20],
        traceparent=row[21],
        enqueued_by=row[22],
        created_at=_instant(row[23]),
        updated_at=_instant(row[24]),
        started_at=_utc(row[25]),
    )


def enqueued(job_id: UUID, run_id: UUID, state: JobState, *, deduplicated: bool) -> EnqueueResult:
    """Answer which job stands for a request."""
    if state not in _JOB_STATES:
        _refuse("x_jobs", job_id, state)
    return EnqueueResult(id=job_id, run_id=run_id, state=state, deduplicated=deduplicated)


def step(row: Sequence[Any]) -> Step:
    """Answer a step from its columns in the record's order."""
    if row[3] not in _STEP_STATUSES:
        _refuse("x_job_steps", f"{row[0]} {row[1]}", row[3])
    return Step(
        run_id=row[0],
        name=row[1],
        kind=row[2],
        status=row[3],
        output=row[4],
        attempts=row[5],
        error=row[6],
        started_at=_instant(row[7]),
        completed_at=_utc(row[8]),
        wake_at=_utc(row[9]),
        event=row[10],
        correlation_key=row[11],
    )


def recorded(run_id: UUID, rows: Sequence[Sequence[Any]]) -> dict[str, Recorded]:
    """Answer what a replay needs of each step, by name, from name, kind, status and output's text."""
    strange = {row[2] for row in rows} - _STEP_STATUSES
    if strange:
        _refuse("x_job_steps", run_id, strange.pop())
    return {name: Recorded(kind, status, text) for name, kind, status, text in rows}


def event(row: Sequence[Any]) -> Event:
    """Answer an event from its columns in the record's order."""
    return Event(
        id=row[0],
        name=row[1],
        key=row[2],
        payload=row[3],
        published_at=_instant(row[4]),
        expires_at=_instant(row[5]),
    )


def instant(value: datetime) -> datetime:
    """Answer an instant that a statement read, in UTC."""
    return _instant(value)


def backfill(row: Sequence[Any]) -> Backfill:
    """Answer a ledger row from its columns in the record's order, the derived ones last."""
    if row[6] not in _BACKFILL_STATUSES:
        _refuse("x_backfills", row[0], row[6])
    return Backfill(
        run_id=row[0],
        name=row[1],
        kind=row[2],
        checksum=row[3],
        app_version=row[4],
        environment=row[5],
        status=row[6],
        wanted=row[7],
        waiting_for=row[8],
        rows=row[9],
        written=row[10],
        batches=row[11],
        cursor=row[12],
        estimated_rows=row[13],
        estimate_source=row[14],
        active_seconds=row[15],
        samples=row[16],
        shards=row[17],
        input=row[18],
        options=row[19],
        rejected_rows=row[20],
        launched_by=row[21],
        last_error=row[22],
        last_error_code=row[23],
        started_at=_instant(row[24]),
        updated_at=_instant(row[25]),
        finished_at=_utc(row[26]),
        live=row[27],
        job_id=row[28],
        job_state=row[29],
        attempt=row[30],
        retry_at=_utc(row[31]),
        max_attempts=row[32],
        quiet_seconds=max(row[33], 0.0),
    )


def counter_bucket(tier: CounterTier, row: Sequence[Any]) -> CounterBucket:
    """Answer a bucket of a tier from its instant, name and figures."""
    return CounterBucket(
        tier=tier,
        bucket_at=_instant(row[0]),
        name=row[1],
        completed=row[2],
        retried=row[3],
        deferred=row[4],
        dead=row[5],
        dropped=row[6],
        refused=row[7],
        run_ms=row[8],
        max_run_ms=row[9],
    )


def worker(row: Sequence[Any]) -> tuple[WorkerInfo, datetime]:
    """Answer a worker and when it was last seen."""
    info = WorkerInfo(
        id=row[0],
        host=row[1],
        pid=row[2],
        app_version=row[3],
        queues=row[4],
        names=row[5],
        concurrency=row[6],
        state=row[7],
        in_flight=row[8],
        processed=row[9],
        interrupted=row[10],
        wake=row[11],
    )
    return info, _instant(row[12])


def next_instant(value: datetime | None) -> datetime | None:
    """Answer an instant of a statement's own, in UTC."""
    return _utc(value)


def _utc(value: datetime | None) -> datetime | None:
    return None if value is None else _instant(value)


def _instant(value: datetime) -> datetime:
    """Bring an instant to UTC: a caller's connection may have another TimeZone."""
    return value if value.tzinfo is UTC else value.astimezone(UTC)


def _refuse(table: str, key: object, status: object) -> NoReturn:
    raise UnknownRowStatus(
        f"the row {key} of {table} has the status {status!r}, which this release does not know.",
        fix="rowsweep schema status",
        meta={"table": table, "key": str(key), "status": str(status)},
    )
