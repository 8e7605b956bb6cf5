"""Pausing, resuming and cancelling a run: its ledger row and its jobs in one go."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from rowsweep.errors import NotCancellable, SweepNotFound, SweepNotLive
from rowsweep.jobs.attempts.failure import Failure
from rowsweep.queue.memory import jsonb
from rowsweep.queue.memory.ledger.moves import OPEN_STATUSES, ended_row, with_status
from rowsweep.queue.memory.settle import PARKED_SECONDS
from rowsweep.queue.memory.steering import cancel_job, refuse_taken_key, requeue_job
from rowsweep.queue.records import LIVE_STATES
from rowsweep.queue.stores.ledger import Tuning

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.records import Job
    from rowsweep.queue.stores.ledger import Backfill, Wanted


def steer_run(state: State, run_id: UUID, wanted: Wanted | Tuning, reason: str | None, by: str | None) -> Backfill:
    """Do one verb to a run and answer its row; raises SweepNotFound, SweepNotLive, NotCancellable."""
    row = state.ledger.get(run_id)
    if row is None:
        raise SweepNotFound(
            f"no run {run_id} is in the ledger.", fix="rowsweep sweeps ls", meta={"run_id": str(run_id)}
        )
    now = state.now()
    if isinstance(wanted, Tuning):
        return _tune(state, row, wanted, now)
    if wanted == "pause":
        return _pause(state, row, (reason, by), now)
    return _resume(state, row, now) if wanted == "run" else _cancel(state, row, reason, now)


def _tune(state: State, row: Backfill, tuning: Tuning, now: datetime) -> Backfill:
    if row.status not in OPEN_STATUSES:
        raise _not_live(row, "tuned")
    tuned = {"by": tuning.by, "at": f"{now:%Y-%m-%dT%H:%M:%S.%fZ}"}
    options = {**(jsonb.read(row.options) or {}), **tuning.changes(), "tuned": tuned}
    return _write(state, replace(row, options=jsonb.bind(options), updated_at=now))


def _said(row: Backfill, why: tuple[str | None, str | None], now: datetime) -> Backfill:
    """Keep who asked for a pause, when and why; one that says nothing forgets the former's."""
    known = jsonb.read(row.options)
    options = {name: value for name, value in (known or {}).items() if name != "paused"}
    reason, by = why
    if reason is not None or by is not None:
        options["paused"] = {"by": by, "reason": reason, "at": f"{now:%Y-%m-%dT%H:%M:%S.%fZ}"}
    return replace(row, options=jsonb.bind(options)) if options or known is not None else row


def _pause(state: State, row: Backfill, why: tuple[str | None, str | None], now: datetime) -> Backfill:
    """Ask for a pause; a run that nobody works is parked here and now."""
    if row.status not in OPEN_STATUSES:
        raise _not_live(row, "paused")
    if row.wanted != "pause":
        row = _said(row, why, now)
    jobs = [job for job in state.jobs_of(row.run_id) if job.state in LIVE_STATES]
    if any(_is_held(job, now) for job in jobs):
        return _write(state, replace(row, wanted="pause", updated_at=now))
    if row.status == "paused":
        return row
    for job in jobs:
        state.write(_parked(job, now))
    return _write(state, replace(row, wanted="pause", status="paused", waiting_for=None, updated_at=now))


def _resume(state: State, row: Backfill, now: datetime) -> Backfill:
    """Make a paused run due now, or take a failed or cancelled one up again."""
    jobs = state.jobs_of(row.run_id)
    if row.status in OPEN_STATUSES:
        for job in jobs if row.status == "paused" else []:
            if job.state == "suspended":
                state.write(replace(job, state="ready", run_at=now, updated_at=now))
        return _write(state, replace(row, status="running", wanted="run", updated_at=now))
    unfinished = [job for job in jobs if job.state in ("failed", "dead", "cancelled")]
    if row.status == "done" or not unfinished:
        raise _not_live(row, "resumed")
    for job in unfinished:
        refuse_taken_key(state, job)
    for job in [job for job in jobs if job.state == "suspended"]:
        state.write(replace(job, state="ready", attempt=0, run_at=now, updated_at=now))
    for job in unfinished:
        requeue_job(state, job, now)
    reopened = state.ledger[row.run_id]
    for number, shard in enumerate(jsonb.read(reopened.shards) or [], 1):
        if shard["status"] in ("failed", "cancelled"):
            reopened = with_status(reopened, number, "running")
    return _write(state, reopened)


def _cancel(state: State, row: Backfill, reason: str | None, now: datetime) -> Backfill:
    if row.status == "cancelled":
        return row
    if row.status not in OPEN_STATUSES:
        raise NotCancellable(
            f"run {row.run_id} of {row.name!r} is {row.status}.",
            fix="rowsweep jobs ls --json",
            meta={"run_id": str(row.run_id), "status": row.status},
        )
    for job in state.jobs_of(row.run_id):
        if job.state in LIVE_STATES:
            cancel_job(state, job, reason, now)
    return _write(state, ended_row(row, "cancelled", None if reason is None else Failure(text=reason), now))


def _write(state: State, row: Backfill) -> Backfill:
    state.ledger[row.run_id] = row
    return row


def _is_held(job: Job, now: datetime) -> bool:
    return job.visible_at is not None and job.visible_at > now


def _parked(job: Job, now: datetime) -> Job:
    looks_again = now + timedelta(seconds=PARKED_SECONDS)
    return replace(job, state="suspended", claimed_by=None, visible_at=None, run_at=looks_again, updated_at=now)


def _not_live(row: Backfill, verb: str) -> SweepNotLive:
    return SweepNotLive(
        f"run {row.run_id} of {row.name!r} is {row.status} and cannot be {verb}.",
        fix="rowsweep sweeps ls",
        meta={"run_id": str(row.run_id), "status": row.status},
    )
