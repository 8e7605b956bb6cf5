"""The plans of what waits and what wakes: bounded by what is waited for, whatever the statistics say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.places import queue_schema
from tests.postgres.plans.explain import explain, statement

Rows = psycopg.Connection[Any]
EVENTS, RUNS = 50_000, 5_000
OLD_EVENTS = """
insert into x_job_events (id, name, correlation_key, payload, published_at, expires_at)
select gen_random_uuid(), 'paid', case when n %% 2 = 0 then (n / 2)::text end, '{}', now() - interval '1 hour',
       now() + interval '1 day'
from generate_series(1, %s) n
"""
WAITS = """
with runs as (
  insert into x_jobs (id, name, queue, state, input, idempotency_key, run_id, max_attempts, claims, run_at)
  select gen_random_uuid(), 'order', 'default', 'suspended', '{}', n::text, gen_random_uuid(), 5, 1,
         now() + interval '1 day'
  from generate_series(1, %s) n
  returning run_id, idempotency_key as key
)
insert into x_job_steps (run_id, name, kind, status, output, started_at, wake_at, event, correlation_key)
select run_id, 'payment', 'event', 'waiting', jsonb_build_object('snapshot', pg_current_snapshot()::text), now(),
       now() + interval '1 day', 'paid', case when key::integer %% 100 > 0 then key end
from runs
"""


@pytest.fixture(scope="module")
def busy_schema(server_dsn: str) -> Iterator[str]:
    """A schema with events that came before every question, and waits that the statistics do not know."""
    with queue_schema(server_dsn) as (name, connection):
        for table in ("x_jobs", "x_job_steps", "x_job_events"):
            connection.execute(sql.SQL("alter table {} set (autovacuum_enabled = off)").format(sql.Identifier(table)))
        connection.execute("analyze x_jobs; analyze x_job_steps; analyze x_job_events")
        connection.execute(OLD_EVENTS, [EVENTS])
        connection.execute(WAITS, [RUNS])
        yield name


@pytest.fixture
def busy(queue_session: Rows, busy_schema: str) -> Rows:
    """A session of the queue in that schema."""
    queue_session.execute(sql.SQL("set search_path = {}").format(sql.Identifier(busy_schema)))
    return queue_session


def running(connection: Rows) -> dict[str, Any]:
    """Bring one run back to work, for the test's own session only; answer its claim and its run."""
    row = connection.execute(
        "update x_jobs set state = 'running', claimed_by = 'w1' where id = (select id from x_jobs limit 1)"
        " returning id, run_id"
    ).fetchone()
    assert row is not None
    return {"job_id": row[0], "run_id": row[1], "worker": "w1", "claim": 1}


@pytest.mark.parametrize("key", [None, "7"])
def test_a_wait_reads_only_what_could_answer_it(busy: Rows, busy_schema: str, key: str | None) -> None:
    """N-047: not the events that came before it, however many have its name and key."""
    more = {"name": "other", "event": "paid", "key": key, "timeout": 60.0, "since": None}
    with busy.transaction(force_rollback=True):
        plan = explain(busy, statement("steps", "wait"), busy_schema, {**running(busy), **more})
    assert plan.indexes("x_job_events") <= {"x_job_events_lookup_idx", "x_job_events_xid_idx"}
    assert plan.indexes("x_jobs") == {"x_jobs_pkey"}
    assert plan.pages < 200


@pytest.mark.parametrize("key", [None, "7"])
def test_a_publication_reads_only_the_waits_that_it_wakes(busy: Rows, busy_schema: str, key: str | None) -> None:
    """N-048."""
    row = busy.execute("select gen_random_uuid()").fetchone()
    assert row is not None
    values = {"id": row[0], "name": "paid", "key": key, "payload": "{}", "ttl": 60.0}
    plan = explain(busy, statement("events", "publish"), busy_schema, values)
    assert plan.indexes("x_job_steps") == {"x_job_steps_waiting_idx"}
    assert plan.indexes("x_jobs") <= {"x_jobs_run_idx", "x_jobs_pkey"}
    assert plan.pages < (2_000 if key is None else 200)


def test_a_poll_probes_each_wait_once(busy: Rows, busy_schema: str) -> None:
    """N-048: a few pages a wait, whatever number of events came before it."""
    info = dict.fromkeys(
        ("id", "host", "pid", "app_version", "concurrency", "state", "in_flight", "processed", "interrupted", "wake")
    )
    more: dict[str, Any] = {"own_queues": [], "own_names": [], "expires": 30.0, "queues": ["default"], "proof": None}
    more |= {"sample": False, "every": 15.0, "most": 1_000_000}
    values = {**info, **more, "names": ["order"], "poll": ["order"]}
    plan = explain(busy, statement("workers", "look"), busy_schema, values)
    assert plan.indexes("x_job_steps") == {"x_job_steps_waiting_idx"}
    assert plan.indexes("x_job_events") == {"x_job_events_xid_idx"}
    assert plan.pages < 12 * RUNS


def test_a_poll_that_is_not_due_reads_no_wait(busy: Rows, busy_schema: str) -> None:
    """N-043: most looks carry none."""
    info = dict.fromkeys(
        ("id", "host", "pid", "app_version", "concurrency", "state", "in_flight", "processed", "interrupted", "wake")
    )
    more: dict[str, Any] = {"own_queues": [], "own_names": [], "expires": 30.0, "queues": ["default"], "proof": None}
    more |= {"sample": False, "every": 15.0, "most": 1_000_000}
    plan = explain(busy, statement("workers", "look"), busy_schema, {**info, **more, "names": ["order"], "poll": []})
    assert plan.of("x_job_steps") == []
    assert plan.pages < 100
