"""Jobs on Postgres: enqueue, claim, settle, renew, progress, stats."""

from __future__ import annotations

import zlib
from dataclasses import fields, replace
from functools import partial
from itertools import groupby, tee
from typing import TYPE_CHECKING, Any, Final

from rowsweep.errors import InvariantBroken
from rowsweep.jobs.request import EnqueueResult
from rowsweep.jobs.values.json_form import json_text
from rowsweep.options import count
from rowsweep.queue.postgres.statements.arrays import Longs, Texts, Uuids, texts_or_none
from rowsweep.queue.postgres.statements.session import JoinedSession, PooledSession
from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.postgres.stores import records
from rowsweep.queue.postgres.stores.copied import can_be_copied, rows_of
from rowsweep.queue.postgres.stores.settle import settle_values
from rowsweep.queue.records import DEFAULT_QUEUE, LEASE_LAPSED_FINAL_ATTEMPT, ClaimPass, QueueStats
from rowsweep.queue.refusals import one_queue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from uuid import UUID

    from psycopg.rows import TupleRow

    from rowsweep.jobs.request import NewJob
    from rowsweep.queue.postgres.statements.session import Session
    from rowsweep.queue.records import Claim, ClaimOptions, Job
    from rowsweep.queue.verdicts import Settlement

ENQUEUE_ATTEMPTS: Final = 2
ENQUEUE_ROWS: Final = 1_000
FEW: Final = 64
SHARDS: Final = 8
_SQL = load(__name__)
_STATS: Final = tuple(field.name for field in fields(QueueStats))


class PostgresJobs:
    """Keep jobs in `x_jobs`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def enqueue(self, jobs: Sequence[NewJob]) -> list[EnqueueResult]:
        """Insert the jobs, 1,000 in a statement, all or none; a live job with the key of one answers for it."""
        if len(jobs) <= 1:
            one = jobs[:1]
            return _enqueue(self._session, one, _insert(self._session, one)) if one else []
        with self._session.unit() as session:
            ways = groupby(_parts(jobs, ENQUEUE_ROWS), partial(_way, session))
            return [result for way, parts in ways for result in _enqueue_each(session, way, parts)]

    def claim(self, options: ClaimOptions) -> ClaimPass:
        """Claim from the one queue named; lapsed rows go first, in a statement of their own."""
        queue = one_queue(options, driver="postgres")
        limit = count(options.limit, option="limit", minimum=0)
        if limit == 0:
            return ClaimPass(jobs=[])
        taken, buried = self._claim_lapsed(options, queue, limit) if options.lapsed else ([], [])
        if len(taken) >= limit:
            return ClaimPass(jobs=taken, buried=buried)
        free = limit - len(taken)
        few = self._claim_few(options, queue, free) if options.few else None
        if few is not None:
            return replace(few, jobs=taken + few.jobs, buried=buried)
        rows = self._session.rows(
            _SQL["claim"],
            {
                "queue": queue,
                "names": list(options.names),
                **_rooms(options),
                "starts": json_text(options.starts or []),
                "worker": options.worker_id,
                "visibility": float(options.visibility_seconds),
                "limit": free,
                # Workers that meet at the head of the queue find rows behind those the others hold.
                "scan": 2 * free + 32,
            },
        )
        claimed = _claimed(rows)
        starts = next((row[-2] for row in rows if row[-2] is not None), None)
        next_run_at = records.next_instant(rows[0][-1])
        return ClaimPass(jobs=taken + claimed, buried=buried, next_run_at=next_run_at, starts=starts)

    def settle(self, settlements: Sequence[Settlement], *, resent: bool = False) -> list[bool | None]:
        """End claims in one statement, one answer each."""
        if not settlements:
            return []
        shard = shard_of(settlements[0].claim.worker_id)
        values = {**settle_values(settlements), "shard": shard, "resent": resent}
        return [row[1] for row in self._session.rows(_SQL["settle"], values)]

    def renew(self, claims: Sequence[Claim], *, visibility_seconds: float) -> list[bool | None]:
        """Extend claims from the database's now in one statement, one answer each."""
        if not claims:
            return []
        values = {
            "id": Uuids([claim.job_id for claim in claims]),
            "worker": [claim.worker_id for claim in claims],
            "claim": Longs([claim.claim for claim in claims]),
            "visibility": float(visibility_seconds),
        }
        return [row[1] for row in self._session.rows(_SQL["renew"], values)]

    def record_progress(self, claim: Claim, progress: Any) -> bool:
        """Store a run's progress under its claim."""
        values = {**claim_values(claim), "progress": json_text(progress)}
        return bool(self._session.rows(_SQL["record_progress"], values))

    def stats(self) -> list[QueueStats]:
        """Count rows by queue and state, queues by name."""
        return [QueueStats(**dict(zip(_STATS, row, strict=True))) for row in self._session.rows(_SQL["stats"], {})]

    def _claim_few(self, options: ClaimOptions, queue: str, limit: int) -> ClaimPass | None:
        """Claim where few rows are live; None, and nothing claimed, where there may be more."""
        rows = self._session.rows(
            _SQL["claim_few"],
            {
                "queue": queue,
                "names": Texts(options.names),
                "worker": options.worker_id,
                "visibility": float(options.visibility_seconds),
                "limit": limit,
                "few": FEW,
            },
        )
        if not rows[0][-2]:
            return None
        claimed = sorted(_claimed(rows), key=_claim_order)
        return ClaimPass(jobs=claimed, next_run_at=records.next_instant(rows[0][-1]), few=True)

    def _claim_lapsed(self, options: ClaimOptions, queue: str, limit: int) -> tuple[list[Job], list[Job]]:
        rows = self._session.rows(
            _SQL["claim_lapsed"],
            {
                "queue": queue,
                "names": list(options.names),
                "drop_exhausted": list(options.drop_exhausted),
                "busy_names": [name for name, key in options.busy if key is None],
                "busy_keys": _busy_keys(options),
                "worker": options.worker_id,
                "visibility": float(options.visibility_seconds),
                "limit": limit,
                "alone": isinstance(self._session, PooledSession),
                "error": LEASE_LAPSED_FINAL_ATTEMPT,
                "shard": shard_of(options.worker_id),
            },
        )
        found = [records.job(row) for row in rows]
        taken = [job for job in found if job.state == "running"]
        taken.sort(key=_claim_order)
        return taken, [job for job in found if job.state != "running"]


def _claimed(rows: Sequence[TupleRow]) -> list[Job]:
    """Answer the jobs of a claim's rows; one that stands for no job says only what the pass came to."""
    return [records.job(row) for row in rows if row[0] is not None]


def _claim_order(job: Job) -> tuple[int, datetime, UUID]:
    return -job.priority, job.run_at, job.id


def claim_values(claim: Claim) -> dict[str, object]:
    """Answer a claim as the values of a fenced statement."""
    return {"job_id": claim.job_id, "worker": claim.worker_id, "claim": claim.claim}


def shard_of(worker_id: str) -> int:
    """Answer which of the counter rows a worker's counts go into; it only keeps settlers off one row."""
    return zlib.crc32(worker_id.encode("utf-8", "surrogatepass")) % SHARDS


def _enqueue(session: Session, jobs: Sequence[NewJob], inserted: dict[int, Any]) -> list[EnqueueResult]:
    """Answer which job stands for each request, once those that could be were inserted; the rest is tried again."""
    if len(inserted) == len(jobs):  # as nearly always: nobody has the key of one
        return [records.enqueued(job.id, job.run_id, inserted[job.id.int], deduplicated=False) for job in jobs]
    results: dict[int, EnqueueResult] = {}
    for attempt in range(ENQUEUE_ATTEMPTS):
        waiting = [at for at in range(len(jobs)) if at not in results]
        if attempt:
            inserted = _insert(session, [jobs[at] for at in waiting])
        for at in waiting:
            job = jobs[at]
            if job.id.int in inserted:
                results[at] = records.enqueued(job.id, job.run_id, inserted.pop(job.id.int), deduplicated=False)
        results |= find_live(session, jobs, [at for at in waiting if at not in results])
        if len(results) == len(jobs):
            return [results[at] for at in range(len(jobs))]
    lost = next(jobs[at] for at in range(len(jobs)) if at not in results)
    raise InvariantBroken(
        f"the key {lost.idempotency_key!r} of {lost.name!r} conflicts with a live job that cannot be found.",
        fix="reindex index x_jobs_name_tenant_idempotency_live_idx",
        meta={"name": lost.name, "idempotency_key": lost.idempotency_key},
    )


def _enqueue_each(session: Session, way: str, parts: Iterator[Sequence[NewJob]]) -> list[EnqueueResult]:
    """Put part after part on the queue by one statement each; the next is made while the server has those before."""
    if isinstance(session, JoinedSession) and way == "enqueue_copied":
        return _copy(session, parts)
    parts, sent = tee(parts)
    answers = session.rows_each(_SQL[way], map(enqueue_values, sent))
    answered = zip(parts, answers, strict=True)
    return [result for part, rows in answered for result in _enqueue(session, part, _states(rows))]


def _copy(session: JoinedSession, parts: Iterator[Sequence[NewJob]]) -> list[EnqueueResult]:
    """Stream the jobs in; one that could not go in has failed the statement."""
    instant = session.rows(_SQL["instant"], {})[0][0]
    results: list[EnqueueResult] = []
    queues: set[str] = set()

    def blocks(encoding: str) -> Iterator[bytes]:
        for part in parts:
            yield rows_of(part, instant, encoding)
            results.extend(
                [EnqueueResult(id=job.id, run_id=job.run_id, state="ready", deduplicated=False) for job in part]
            )
            queues.update(job.queue or DEFAULT_QUEUE for job in part)

    session.copy(_SQL["enqueue_copied"], blocks)
    session.rows(_SQL["wake"], {"queues": sorted(queues)})
    return results


def _insert(session: Session, jobs: Sequence[NewJob]) -> dict[int, Any]:
    if len(jobs) == 1:
        return _states(session.rows(_SQL["enqueue_one"], _values_of_one(jobs[0])))
    return _states(session.rows(_SQL[_statement(jobs)], enqueue_values(jobs)))


def _values_of_one(job: NewJob) -> dict[str, object]:
    return {
        "id": job.id,
        "name": job.name,
        "queue": job.queue or DEFAULT_QUEUE,
        "priority": job.priority,
        "input": json_text(job.input),
        "idempotency_key": job.idempotency_key,
        "tenant_id": job.tenant_id,
        "concurrency_key": job.concurrency_key,
        "run_id": job.run_id,
        "max_attempts": job.max_attempts,
        "run_at": job.run_at,
        "delay": None if job.delay_seconds is None else float(job.delay_seconds),
        "traceparent": job.traceparent,
        "enqueued_by": job.enqueued_by,
    }


def _way(session: Session, jobs: Sequence[NewJob]) -> str:
    """Answer by which statement these go in."""
    may_copy = isinstance(session, JoinedSession) and session.is_own
    return "enqueue_copied" if may_copy and can_be_copied(jobs) else _statement(jobs)


def _statement(jobs: Sequence[NewJob]) -> str:
    return "enqueue_unkeyed" if all(job.is_unkeyed for job in jobs) else "enqueue"


def _states(rows: Sequence[Sequence[Any]]) -> dict[int, Any]:
    """Answer the states of what was inserted, by the number of its id: an id's own hash is made in Python."""
    return {row[0].int: row[1] for row in rows}


def enqueue_values(jobs: Sequence[NewJob]) -> dict[str, object]:
    """Answer jobs as the values of a statement that inserts them."""
    delays = any(job.delay_seconds is not None for job in jobs)
    return {
        "id": Uuids([job.id for job in jobs]),
        "name": Texts([job.name for job in jobs]),
        "queue": Texts([job.queue or DEFAULT_QUEUE for job in jobs]),
        "priority": Longs([job.priority for job in jobs]),
        "input": Texts([json_text(job.input) for job in jobs]),
        "idempotency_key": Texts([job.idempotency_key for job in jobs]),
        "tenant_id": texts_or_none([job.tenant_id for job in jobs]),
        "concurrency_key": texts_or_none([job.concurrency_key for job in jobs]),
        "run_id": Uuids([job.run_id for job in jobs]),
        "max_attempts": Longs([job.max_attempts for job in jobs]),
        "run_at": [job.run_at for job in jobs] if any(job.run_at is not None for job in jobs) else [],
        "delay": [None if job.delay_seconds is None else float(job.delay_seconds) for job in jobs] if delays else [],
        "traceparent": texts_or_none([job.traceparent for job in jobs]),
        "enqueued_by": texts_or_none([job.enqueued_by for job in jobs]),
    }


def find_live(session: Session, jobs: Sequence[NewJob], missing: list[int]) -> dict[int, EnqueueResult]:
    """Answer the live jobs that have the keys of those at these positions, by position."""
    if not missing:
        return {}
    values = {
        "name": [jobs[at].name for at in missing],
        "tenant_id": [jobs[at].tenant_id for at in missing],
        "idempotency_key": [jobs[at].idempotency_key for at in missing],
    }
    rows = session.rows(_SQL["find_live_by_key"], values)
    return {missing[row[0] - 1]: records.enqueued(*row[1:], deduplicated=True) for row in rows}


def _parts(jobs: Sequence[NewJob], size: int) -> Iterator[Sequence[NewJob]]:
    for start in range(0, len(jobs), size):
        yield jobs[start : start + size]


def _rooms(options: ClaimOptions) -> dict[str, object]:
    """Answer how many rows of each name the pass may take, none of one whose cap is full."""
    full = {name: 0 for name, key in options.busy if key is None}
    rooms = {**options.rooms, **full}
    return {
        "rooms": [rooms.get(name) for name in options.names],
        "key_rooms": [options.key_rooms.get(name) for name in options.names],
        "busy_keys": _busy_keys(options),
    }


def _busy_keys(options: ClaimOptions) -> list[str]:
    return [f"{name}:{key}" for name, key in options.busy if key is not None]
