"""Jobs in memory: enqueue, claim, settle, renew, progress, stats."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rowsweep.errors import InvariantBroken
from rowsweep.jobs.request import EnqueueResult
from rowsweep.queue.memory import jsonb
from rowsweep.queue.memory.claim import claim_pass
from rowsweep.queue.memory.settle import settle_one
from rowsweep.queue.memory.state import key_of, locked
from rowsweep.queue.records import DEFAULT_QUEUE, WAITING_STATES, Job, QueueStats

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rowsweep.jobs.request import NewJob
    from rowsweep.queue.memory.state import State
    from rowsweep.queue.records import Claim, ClaimOptions, ClaimPass
    from rowsweep.queue.verdicts import Settlement


class MemoryJobs:
    """Keep jobs in a dict; nothing is ever locked by another, so no answer is None."""

    def __init__(self, state: State) -> None:
        self._state = state

    @locked
    def enqueue(self, jobs: Sequence[NewJob]) -> list[EnqueueResult]:
        """Insert the jobs, all or none; a live job with the key of one answers for it."""
        now = self._state.now()
        rows = [_row(new, now) for new in jobs]
        self._refuse_taken_ids(rows)
        return [self._insert(row) for row in rows]

    @locked
    def claim(self, options: ClaimOptions) -> ClaimPass:
        """Claim from the one queue named; lapsed rows first."""
        return claim_pass(self._state, options)

    @locked
    def settle(self, settlements: Sequence[Settlement], *, resent: bool = False) -> list[bool | None]:
        """End claims, one answer each."""
        now = self._state.now()
        return [settle_one(self._state, settlement, now, resent=resent) for settlement in settlements]

    @locked
    def renew(self, claims: Sequence[Claim], *, visibility_seconds: float) -> list[bool | None]:
        """Extend claims from the clock's now, one answer each."""
        visible_at = self._state.now() + timedelta(seconds=visibility_seconds)
        return [self._change(claim, visible_at=visible_at) for claim in claims]

    @locked
    def record_progress(self, claim: Claim, progress: Any) -> bool:
        """Store a run's progress under its claim."""
        return self._change(claim, progress=jsonb.bind(progress))

    @locked
    def stats(self) -> list[QueueStats]:
        """Count rows by queue and state, queues by name."""
        now = self._state.now()
        by_queue: dict[str, list[Job]] = {}
        for job in self._state.jobs.values():
            by_queue.setdefault(job.queue, []).append(job)
        return [_stats_of(queue, by_queue[queue], now) for queue in sorted(by_queue)]

    def _refuse_taken_ids(self, rows: list[Job]) -> None:
        """Refuse a second row of one id before the first row is written: a batch is all or none."""
        new = {key_of(row): row.id for row in reversed(rows) if key_of(row) not in self._state.live}
        twice = [job_id for job_id, times in Counter(new.values()).items() if times > 1]
        taken = [*twice, *(job_id for job_id in new.values() if job_id in self._state.jobs)]
        if taken:
            raise InvariantBroken(
                f"the id {taken[0]} is asked for by a new job and has a row already.",
                fix="give every NewJob an id of its own",
                meta={"job_id": str(taken[0])},
            )

    def _insert(self, row: Job) -> EnqueueResult:
        state = self._state
        standing = state.live.get(key_of(row))
        if standing is None:
            state.write(row)
        kept = row if standing is None else state.jobs[standing]
        return EnqueueResult(id=kept.id, run_id=kept.run_id, state=kept.state, deduplicated=standing is not None)

    def _change(self, claim: Claim, **columns: Any) -> bool:
        job = self._state.held(claim)
        if job is not None:
            self._state.write(replace(job, **columns))
        return job is not None


def _row(new: NewJob, now: datetime) -> Job:
    run_at = new.run_at or now + timedelta(seconds=new.delay_seconds or 0)
    return Job(
        id=new.id,
        name=new.name,
        queue=new.queue or DEFAULT_QUEUE,
        priority=new.priority,
        state="delayed" if run_at > now else "ready",
        input=jsonb.bind(new.input),
        idempotency_key=new.idempotency_key,
        tenant_id=new.tenant_id,
        concurrency_key=new.concurrency_key,
        run_id=new.run_id,
        attempt=0,
        max_attempts=new.max_attempts,
        claims=0,
        claimed_by=None,
        visible_at=None,
        run_at=run_at,
        progress=None,
        result=None,
        last_error=None,
        last_error_code=None,
        stop_reason=None,
        traceparent=new.traceparent,
        enqueued_by=new.enqueued_by,
        created_at=now,
        updated_at=now,
        started_at=None,
    )


def _stats_of(queue: str, rows: list[Job], now: datetime) -> QueueStats:
    due = [job for job in rows if job.state in WAITING_STATES and job.run_at <= now]
    buckets: Counter[str] = Counter(
        "ready" if job.state == "delayed" and job.run_at <= now else job.state for job in rows
    )
    oldest = min((job.run_at for job in due), default=None)
    waited = None if oldest is None else (now - oldest).total_seconds()
    return QueueStats(queue=queue, due=len(due), oldest_ready_seconds=waited, **buckets)
