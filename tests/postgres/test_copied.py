"""Bulks that are streamed in by COPY: the rows are what inserts would have made of them."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import sql

from rowsweep.errors import InvariantBroken
from rowsweep.jobs.request import Bulk, NewJob
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.postgres.stores.copied import COPY_FROM, can_be_copied
from rowsweep.queue.postgres.stores.enqueue import ENQUEUE_ROWS
from tests.queue.world import fresh_id, new_job

Rows = psycopg.Connection[Any]
COLUMNS = sql.SQL(
    "select id, name, queue, priority, state, input, idempotency_key, tenant_id, concurrency_key, run_id, attempt, "
    "max_attempts, claims, claimed_by, visible_at, progress, result, last_error, traceparent, enqueued_by, started_at, "
    "ended_as, run_at between created_at and now() from x_jobs order by id"
)
COPYING = (
    "select state from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() "
    "and query like 'copy %' || current_schema() || '%x_jobs%'"
)
ODD: tuple[dict[str, Any], ...] = (
    {},
    {"input": {"é": [None, True, 1.5, "\\ \t \n , \" '"], "deep": {"x": []}}},
    {"input": None, "tenant_id": "Zoë", "concurrency_key": "k:1", "priority": -1000},
    {"name": "läuft\\N", "queue": "slow lane", "priority": 1000, "max_attempts": 1},
    {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "enqueued_by": "me@höst"},
    {"input": "x" * 300_000},
)


def unkeyed(**changes: Any) -> NewJob:
    """Answer a job that was given no key."""
    job_id = fresh_id()
    text = str(job_id)
    return replace(new_job(), id=job_id, idempotency_key=text, id_text=text, **changes)


def bulk(amount: int = COPY_FROM) -> list[NewJob]:
    """Answer so many jobs of every kind."""
    return [unkeyed(**(ODD[number % 5] if number > 5 else ODD[number])) for number in range(amount)]


def rows(other: Rows) -> list[tuple[Any, ...]]:
    """Answer all rows but for their instants, and empty the table."""
    found = other.execute(COLUMNS).fetchall()
    other.execute("delete from x_jobs")
    return found


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1"])
def test_what_is_copied_is_what_is_inserted(dsn: str, driver: PostgresDriver, other: Rows, encoding: str) -> None:
    """N-016, N-028: whatever is in it, in whatever encoding the session sends; answers come in the order asked."""
    jobs = bulk()
    assert can_be_copied(jobs)
    copying = PostgresDriver(psycopg.conninfo.make_conninfo(dsn, client_encoding=encoding))
    results = copying.stores().jobs.enqueue(jobs)
    copying.close()
    assert [(r.id, r.run_id, r.state, r.deduplicated) for r in results] == [
        (job.id, job.run_id, "ready", False) for job in jobs
    ]
    copied = rows(other)
    for at in range(0, len(jobs), 100):
        driver.stores().jobs.enqueue(jobs[at : at + 100])
    assert copied == rows(other)
    assert all(row[-1] for row in copied)


def test_a_bulk_goes_in_whole_or_not_at_all(driver: PostgresDriver, other: Rows) -> None:
    """N-016: one that cannot go in takes back the thousands before it."""
    jobs = bulk(2_100)
    jobs[2_050] = replace(jobs[2_050], id=jobs[3].id)
    with pytest.raises(InvariantBroken):
        driver.stores().jobs.enqueue(jobs)
    assert rows(other) == []
    assert len(driver.stores().jobs.enqueue(jobs[:2_050])) == 2_050
    assert len(rows(other)) == 2_050


def test_a_bulk_of_several_kinds_goes_in_by_several_ways(driver: PostgresDriver, other: Rows) -> None:
    """N-016, S-047: what is copied, what only is inserted and what may be there already, answered in order."""
    taken = replace(new_job(), name="dup", idempotency_key="mine")
    driver.stores().jobs.enqueue([taken])
    plain = [unkeyed() for _ in range(ENQUEUE_ROWS)]
    keyed = [replace(new_job(), name="dup", idempotency_key=str(at)) for at in range(ENQUEUE_ROWS - 1)]
    late = [unkeyed(delay_seconds=60.0) for _ in range(ENQUEUE_ROWS)]
    asked = [*plain, *keyed, replace(new_job(), name="dup", idempotency_key="mine"), *late, *bulk()]
    results = driver.stores().jobs.enqueue(asked)
    stands = [taken if job.idempotency_key == "mine" else job for job in asked]
    assert [(r.id, r.run_id, r.deduplicated) for r in results] == [(job.id, job.run_id, job is taken) for job in stands]
    assert [r.state for r in results[2 * ENQUEUE_ROWS : 3 * ENQUEUE_ROWS]] == ["delayed"] * ENQUEUE_ROWS
    assert len(rows(other)) == len(asked)


def test_requests_are_made_while_the_server_takes_those_before(driver: PostgresDriver, other: Rows) -> None:
    """N-016: the first thousand are streaming when the second are asked for."""
    seen: list[tuple[int, list[tuple[str]]]] = []

    def request(at: int, *_: object) -> NewJob:
        if at % ENQUEUE_ROWS == 0:
            seen.append((at, other.execute(COPYING).fetchall()))
        return unkeyed()

    assert len(driver.stores().jobs.enqueue(Bulk(2 * ENQUEUE_ROWS, request))) == 2 * ENQUEUE_ROWS
    assert seen == [(0, []), (ENQUEUE_ROWS, [("active",)])]


def test_a_bulk_wakes_each_queue_once(driver: PostgresDriver, other: Rows) -> None:
    """D-25, N-042: at its commit, however many statements it took."""
    other.execute("listen rowsweep_wake")
    driver.stores().jobs.enqueue(bulk(1_500))
    heard = [said.payload for said in other.notifies(timeout=5, stop_after=2)]
    assert sorted(heard) == ["default", "slow lane"]
    assert list(other.notifies(timeout=0)) == []


def test_only_many_jobs_that_are_due_and_have_no_key_are_copied() -> None:
    """N-016, S-047: a key may be taken, and a delay counts from the database's now."""
    jobs = bulk()
    assert not can_be_copied(jobs[1:])
    assert not can_be_copied([*jobs, unkeyed(delay_seconds=5.0)])
    assert not can_be_copied([*jobs, replace(new_job(), idempotency_key="mine")])
    assert not can_be_copied([*jobs, replace(unkeyed(), idempotency_key="set later")])


def test_a_bulk_joins_a_caller_s_transaction_and_pipeline(driver: PostgresDriver, other: Rows) -> None:
    """N-014: where COPY may not go, rows are inserted, and never outlive the transaction."""
    with other.transaction(force_rollback=True), other.pipeline():
        assert len(driver.join(other).jobs.enqueue(bulk())) == COPY_FROM
    assert rows(other) == []


def test_a_schema_of_any_name_takes_bulks(server_dsn: str) -> None:
    """N-027: percent signs and quotes are part of it."""
    name = f'Bulk "{uuid.uuid4().hex[:8]}" 100%'
    driver = PostgresDriver(server_dsn, schema=name)
    try:
        driver.install()
        driver.stores().jobs.enqueue(bulk())
        assert sum(stats.ready for stats in driver.stores().jobs.stats()) == COPY_FROM
    finally:
        driver.close()
        with psycopg.connect(server_dsn, autocommit=True) as connection:
            connection.execute("set client_min_messages = warning")
            connection.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(name)))
