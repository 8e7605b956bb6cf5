"""One claim pass: lapsed rows are re-taken or buried, then due rows are taken in order."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from rowsweep.options import row_count
from rowsweep.queue.memory.ledger.moves import end_backfill
from rowsweep.queue.memory.state import job_answer
from rowsweep.queue.memory.upkeep.buckets import count_end
from rowsweep.queue.records import LEASE_LAPSED_FINAL_ATTEMPT, WAITING_STATES, ClaimPass, is_final_attempt
from rowsweep.queue.refusals import one_queue

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.records import ClaimOptions, Job


def claim_pass(state: State, options: ClaimOptions) -> ClaimPass:
    """Claim up to `limit` rows of the one queue named, for the names declared."""
    queue = one_queue(options, driver="memory")
    limit = row_count(options.limit)
    if limit == 0:
        return ClaimPass(jobs=[])
    now = state.now()
    mine = (job for job in state.live_jobs() if job.queue == queue and job.name in options.names)
    rows = [job for job in mine if not state.is_paused(job)]
    lapsed = sorted((job for job in rows if is_lapsed(job, now)), key=lambda job: job.id)
    full = set(options.busy)
    found = (
        [job for job in lapsed if is_final_attempt(job) or not _is_busy(job, full)][:limit] if options.lapsed else []
    )
    buried = [_bury(state, job, options, now) for job in found if is_final_attempt(job)]
    wanted = sorted((job for job in found if not is_final_attempt(job)), key=claim_order)
    free = [job for job in rows if is_due(job, now) and not _is_busy(job, full)]
    wanted += _within_rooms(sorted(free, key=claim_order), options)
    taken = [_take(state, job, options, now) for job in wanted[:limit]]
    open_names = (job for job in rows if (job.name, None) not in full)
    later = (job.run_at for job in open_names if job.state in WAITING_STATES and job.run_at > now)
    return ClaimPass(
        jobs=[job_answer(job) for job in taken],
        buried=[job_answer(job) for job in buried],
        next_run_at=min(later, default=None) if len(taken) < limit else None,
    )


def claim_order(job: Job) -> tuple[int, datetime, UUID]:
    """Answer what rows are claimed by: priority descending, then `run_at`, then id."""
    return -job.priority, job.run_at, job.id


def is_lapsed(job: Job, now: datetime) -> bool:
    """Say whether a running row's holder let its visibility pass."""
    return job.state == "running" and job.visible_at is not None and job.visible_at < now


def is_due(job: Job, now: datetime) -> bool:
    """Say whether a waiting row may be claimed."""
    return job.state in WAITING_STATES and job.run_at <= now


def _is_busy(job: Job, full: set[tuple[str, str | None]]) -> bool:
    return (job.name, None) in full or (job.concurrency_key is not None and (job.name, job.concurrency_key) in full)


def _within_rooms(jobs: list[Job], options: ClaimOptions) -> list[Job]:
    """Leave out, in their order, what is more than a name or a key has room for."""
    taken: Counter[tuple[str, str | None]] = Counter()
    within = []
    for job in jobs:
        key = (job.name, job.concurrency_key)
        is_room = taken[job.name, None] < options.rooms.get(job.name, sys.maxsize)
        if key[1] is not None:
            is_room = is_room and taken[key] < options.key_rooms.get(job.name, sys.maxsize)
        if is_room:
            within.append(job)
            taken.update({key, (job.name, None)})
    return within


def _take(state: State, job: Job, options: ClaimOptions, now: datetime) -> Job:
    taken = replace(
        job,
        state="running",
        attempt=job.attempt + 1,
        claims=job.claims + 1,
        claimed_by=options.worker_id,
        visible_at=now + timedelta(seconds=options.visibility_seconds),
        started_at=now,
        updated_at=job.updated_at if job.state == "running" else now,
    )
    state.write(taken)
    return taken


def _bury(state: State, job: Job, options: ClaimOptions, now: datetime) -> Job:
    """End a job whose body keeps killing its process, instead of handing it out once more."""
    buried = replace(
        job,
        state="failed" if job.name in options.drop_exhausted else "dead",
        claimed_by=None,
        visible_at=None,
        last_error=LEASE_LAPSED_FINAL_ATTEMPT,
        last_error_code=None,
        stop_reason="lapsed",
        updated_at=now,
    )
    state.write(buried)
    end_backfill(state, buried, "failed", now)
    count_end(state, job.name, "dead" if buried.state == "dead" else "dropped", now)
    return buried
