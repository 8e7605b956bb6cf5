"""Putting jobs on the queue: by COPY, by a statement of a thousand, or by one of their own, each by what fits it."""

from __future__ import annotations

from functools import partial
from itertools import groupby, tee
from typing import TYPE_CHECKING, Any, Final

from rowsweep.errors import InvariantBroken
from rowsweep.jobs.request import EnqueueResult
from rowsweep.jobs.values.json_form import json_text
from rowsweep.queue.postgres.statements.arrays import Longs, Texts, Uuids, texts_or_none
from rowsweep.queue.postgres.statements.session import JoinedSession
from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.postgres.stores import records
from rowsweep.queue.postgres.stores.copied import can_be_copied, rows_of
from rowsweep.queue.records import DEFAULT_QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rowsweep.jobs.request import NewJob
    from rowsweep.queue.postgres.statements.session import Session

ENQUEUE_ATTEMPTS: Final = 2
ENQUEUE_ROWS: Final = 1_000
_SQL = load("rowsweep.queue.postgres.stores.jobs")


def enqueue(session: Session, jobs: Sequence[NewJob]) -> list[EnqueueResult]:
    """Insert the jobs, 1,000 in a statement, all or none; a live job with the key of one answers for it."""
    if len(jobs) <= 1:
        one = jobs[:1]
        return _enqueue(session, one, _insert(session, one)) if one else []
    with session.unit() as opened:
        ways = groupby(_parts(jobs, ENQUEUE_ROWS), partial(_way, opened))
        return [result for way, parts in ways for result in _enqueue_each(opened, way, parts)]


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
