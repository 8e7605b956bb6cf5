"""The plans of what an operator reads and moves: keyset seeks on an index, whatever lies behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.records import JobFilter
from tests.places import queue_schema
from tests.postgres.plans.explain import explain, statement

FINISHED = 40_000
PAGE_OF_100 = 300
"""Pages of the table and its index that a page of 100 jobs may touch: one a job, and the way down the tree."""
Rows = psycopg.Connection[Any]
FILTERS = ("queue", "name", "state", "tenant_id", "run_id", "id_from", "id_to", "created_from", "created_to")


def list_running(connection: Rows) -> None:
    """List the running rows, as their claims would have."""
    connection.execute(
        "insert into x_job_claims (queue, jobs) "
        "select queue, array_agg(id) from x_jobs where state = 'running' group by queue"
    )


@pytest.fixture(scope="module")
def history(server_dsn: str) -> Iterator[str]:
    """A schema with many finished rows, a few dead letters among the oldest, and a few live rows."""
    with queue_schema(server_dsn) as (name, connection):
        connection.execute("alter table x_jobs set (autovacuum_enabled = off)")
        connection.execute(
            """insert into x_jobs (id, name, queue, state, input, idempotency_key, run_id, max_attempts, run_at,
                                   created_at, updated_at, claimed_by)
               select lpad(to_hex(n), 32, '0')::uuid, 'mail', 'default',
                      case when n <= 20 then 'dead' when n > %(amount)s + 20 then 'running'
                           when n > %(amount)s then 'ready' else 'done' end,
                      '{}', n::text, gen_random_uuid(), 3, now(), now() - (100000 - n) * interval '1 s', now(),
                      case when n > %(amount)s + 20 then 'w1' end
               from generate_series(1, %(amount)s + 40) n""",
            {"amount": FINISHED},
        )
        list_running(connection)
        connection.execute("vacuum analyze x_jobs")
        yield name


@pytest.fixture
def read(queue_session: Rows, history: str) -> Rows:
    """A session of the queue in that schema."""
    queue_session.execute(sql.SQL("set search_path = {}").format(sql.Identifier(history)))
    return queue_session


def page(connection: Rows, *, at: int | None = None, **filters: Any) -> dict[str, Any]:
    """Answer the values of a page of 100, at the n-th job's place where one is given."""
    place: Any = (None, None)
    if at is not None:
        place = connection.execute("select created_at, id from x_jobs where idempotency_key = %s", [str(at)]).fetchone()
    return {**dict.fromkeys(FILTERS), "limit": 100, "at": place[0], "at_id": place[1], **filters}


@pytest.mark.parametrize(("name", "at"), [("list", None), ("list", FINISHED // 2), ("list_before", FINISHED // 2)])
@pytest.mark.parametrize("filters", [{}, {"state": "done"}, {"name": "mail", "queue": "default"}])
def test_a_page_seeks_its_place_and_reads_a_page(
    read: Rows, history: str, name: str, at: int | None, filters: dict[str, Any]
) -> None:
    """S-388, DESIGN §4: never the rows in front of it, however many are finished."""
    plan = explain(read, statement("inspection", name), history, page(read, at=at, **filters))
    assert plan.indexes("x_jobs") == {"x_jobs_created_idx"}
    assert plan.pages < PAGE_OF_100


@pytest.mark.parametrize(
    ("state", "index"),
    [
        ("dead", "x_jobs_finished_idx"),
        ("failed", "x_jobs_finished_idx"),
        ("running", "x_jobs_claim_idx"),
        ("ready", "x_jobs_claim_idx"),
        ("suspended", "x_jobs_claim_idx"),
    ],
)
@pytest.mark.parametrize("name", ["list", "list_before"])
def test_a_state_that_few_rows_are_in_is_found_by_its_index(
    read: Rows, history: str, name: str, state: str, index: str
) -> None:
    """S-389: dead letters among the oldest of many finished rows are not looked for one by one."""
    at = FINISHED // 2 if name == "list_before" else None
    plan = explain(read, statement("inspection", name), history, page(read, at=at, state=state))
    assert plan.indexes("x_jobs") == {index}
    assert plan.pages < PAGE_OF_100


def test_running_rows_are_found_beside_many_that_wait(queue_session: Rows, schema: str) -> None:
    """S-389: by what claims have listed, so that a long backlog is not read."""
    queue_session.execute(
        """insert into x_jobs (id, name, state, claimed_by, input, idempotency_key, run_id, max_attempts, run_at)
           select gen_random_uuid(), 'mail', case when n > 20 then 'ready' else 'running' end,
                  case when n > 20 then null else 'w1' end, '{}', n::text, gen_random_uuid(), 3, now()
           from generate_series(1, 20000) n"""
    )
    list_running(queue_session)
    queue_session.execute("vacuum analyze x_jobs")
    plan = explain(queue_session, statement("inspection", "list"), schema, page(queue_session, state="running"))
    assert plan.indexes("x_jobs") == {"x_jobs_pkey"}
    assert plan.pages < PAGE_OF_100


def test_an_id_is_found_by_how_it_begins(read: Rows, history: str) -> None:
    """S-389."""
    ids: dict[str, Any] = {"id_from": UUID(int=0x1230), "id_to": UUID(int=0x123F)}
    plan = explain(read, statement("inspection", "list"), history, page(read, **ids))
    assert plan.indexes("x_jobs") == {"x_jobs_pkey"}
    assert plan.pages < 50


def test_dead_letters_come_off_the_index_of_finished_rows(read: Rows, history: str) -> None:
    """S-090."""
    plan = explain(read, statement("inspection", "dead_letters"), history, {"limit": 100})
    assert plan.indexes("x_jobs") == {"x_jobs_finished_idx"}
    assert plan.pages < 50


@pytest.mark.parametrize(
    ("verb", "state", "indexes"),
    [
        ("remove_many", "done", {"x_jobs_finished_idx", "x_jobs_pkey", "x_jobs_run_idx"}),
        ("remove_many", "dead", {"x_jobs_finished_idx", "x_jobs_pkey", "x_jobs_run_idx"}),
        ("promote_many", "ready", {"x_jobs_claim_idx", "x_jobs_pkey"}),
        ("promote_many", None, {"x_jobs_claim_idx", "x_jobs_pkey"}),
        ("requeue_many", "dead", {"x_jobs_finished_idx", "x_jobs_pkey", "x_jobs_name_tenant_idempotency_live_idx"}),
    ],
)
def test_a_bulk_verb_finds_its_rows_by_their_state_and_moves_them_by_their_key(
    read: Rows, history: str, verb: str, state: str | None, indexes: set[str]
) -> None:
    """S-399, DESIGN §4: other finished rows cost nothing."""
    values = {"state": state, "queue": None, "name": None, "tenant_id": None, "limit": 20}
    plan = explain(read, statement("steering", verb), history, values)
    assert plan.indexes("x_jobs") <= indexes
    assert None not in plan.indexes("x_jobs")
    assert plan.pages < 1_000


@pytest.mark.parametrize("name", ["requeue_many", "count_requeueable"])
def test_whether_a_key_is_live_is_asked_key_by_key(read: Rows, history: str, name: str) -> None:
    """S-396, DESIGN §4: statistics that know of no live row never make a call read all of them for each dead letter."""
    values = {"state": "dead", "queue": None, "name": "letter", "tenant_id": None, "limit": 20}
    with read.transaction(force_rollback=True):
        for state in ("dead", "ready"):
            read.execute(
                """insert into x_jobs (id, name, state, input, idempotency_key, run_id, max_attempts, run_at)
                   select gen_random_uuid(), 'letter', %(state)s, '{}', %(state)s || n, gen_random_uuid(), 3, now()
                   from generate_series(1, 1000) n""",
                {"state": state},
            )
        plan = explain(read, statement("steering", name), history, values)
    assert None not in plan.indexes("x_jobs")
    assert plan.pages < 10_000


def test_a_page_is_planned_for_its_own_values_each_time(driver: PostgresDriver) -> None:
    """S-388: however often it is asked, it is never prepared, or its sixth plan would fit all filters alike."""
    with driver.transaction() as tx:
        inspection = tx.stores.inspection
        assert inspection is not None
        for _ in range(7):
            inspection.list(JobFilter(), limit=1)
            inspection.dead_letters(limit=1)
        rows = tx.connection.execute("select statement from pg_prepared_statements").fetchall()
    texts = [str(row[0]) for row in rows]
    assert any("'dead'" in text for text in texts)
    assert not any("between" in text for text in texts)
