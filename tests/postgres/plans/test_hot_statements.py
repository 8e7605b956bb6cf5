"""The plans of the hot statements: they keep to their indexes whatever the statistics say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.postgres.stores.settle import settle_values
from rowsweep.queue.records import Claim, ClaimOptions, claim_of
from rowsweep.queue.verdicts import Done, Settlement
from tests.places import queue_schema
from tests.postgres.plans.explain import explain, prepared, run_plan, statement

FINISHED = 100_000
KEY = {"x_jobs_pkey"}
Rows = psycopg.Connection[Any]


def fill(
    connection: Rows, state: str, amount: int, *, name: str = "mail", priority: int = 0, later: bool = False
) -> None:
    """Put many rows into `x_jobs` behind the driver's back."""
    connection.execute(
        """insert into x_jobs (id, name, queue, priority, state, input, idempotency_key, run_id, max_attempts,
                               claims, claimed_by, visible_at, run_at)
           select gen_random_uuid(), %(name)s, 'default', %(priority)s, %(state)s, '{}', gen_random_uuid()::text,
                  gen_random_uuid(), 3, 1, case when %(state)s = 'running' then 'w1' end,
                  case when %(state)s = 'running' then now() + interval '1 hour' end,
                  now() + case when %(later)s then interval '1 day' else interval '0' end
           from generate_series(1, %(amount)s)""",
        {"name": name, "priority": priority, "state": state, "amount": amount, "later": later},
    )


@pytest.fixture(scope="module")
def stale_schema(server_dsn: str) -> Iterator[str]:
    """A schema with 100,000 finished rows that the statistics know of, and live ones that they do not."""
    with queue_schema(server_dsn) as (name, connection):
        connection.execute("alter table x_jobs set (autovacuum_enabled = off)")
        fill(connection, "done", FINISHED)
        connection.execute("vacuum analyze x_jobs")
        fill(connection, "ready", 2_000)
        fill(connection, "ready", 500, priority=5)
        fill(connection, "running", 2_000)
        fill(connection, "ready", 5_000, name="undeclared", priority=9)
        fill(connection, "delayed", 5_000, later=True)
        yield name


@pytest.fixture
def stale(queue_session: Rows, stale_schema: str) -> Rows:
    """A session of the queue in that schema; what a test writes there it takes back."""
    queue_session.execute(sql.SQL("set search_path = {}").format(sql.Identifier(stale_schema)))
    return queue_session


def claim_values(limit: int = 100, *names: str) -> dict[str, object]:
    """Answer a claim's values."""
    given: dict[str, Any] = {"queue": "default", "names": list(names or ("mail", "other")), "worker": "w2"}
    given["visibility"] = 30.0
    rooms = {
        "rooms": [None] * len(given["names"]),
        "key_rooms": [None] * len(given["names"]),
        "busy_keys": [],
        "starts": "[]",
    }
    return {**given, **rooms, "limit": limit, "scan": 2 * limit + 32}


def held(connection: Rows, amount: int = 500) -> list[Claim]:
    """Answer claims of running rows."""
    rows = connection.execute("select id from x_jobs where state = 'running' limit %s", [amount])
    return [Claim(job_id=row[0], worker_id="w1", claim=1) for row in rows]


def settle_500(connection: Rows) -> dict[str, Any]:
    """Answer the values of a full group."""
    settlements = [Settlement(claim=claim, verdict=Done(), sweep=True) for claim in held(connection)]
    return {**settle_values(settlements), "shard": 1, "resent": False}


def renew_500(connection: Rows) -> dict[str, Any]:
    """Answer the values of a worker with 500 runs."""
    claims = held(connection)
    return {
        "id": [claim.job_id for claim in claims],
        "worker": [claim.worker_id for claim in claims],
        "claim": [claim.claim for claim in claims],
        "visibility": 30.0,
    }


def test_a_claim_seeks_its_index_and_locks_by_the_primary_key(stale: Rows, stale_schema: str) -> None:
    """N-031: finished, delayed and undeclared rows cost nothing, and a bounded number is read."""
    plan = explain(stale, statement("jobs", "claim"), stale_schema, claim_values())
    assert plan.indexes("x_jobs") == {"x_jobs_claim_idx", "x_jobs_pkey"}
    assert sum(scan.removed for scan in plan.of("x_jobs")) == 0
    assert plan.pages < 6_000


@pytest.mark.parametrize("state", ["delayed", "undeclared", "paused"])
def test_a_claim_reads_no_more_beside_many_rows_it_may_not_take(queue_session: Rows, schema: str, state: str) -> None:
    """N-031, S-099: what waits for its time, for its worker or behind a pause is never walked."""
    name = {"delayed": "mail", "undeclared": "nobody", "paused": "other"}[state]
    fill(queue_session, "ready", 200)
    before = explain(queue_session, statement("jobs", "claim"), schema, claim_values(10)).pages
    queue_session.execute("insert into x_job_pauses (name, paused_at) values ('other', now())")
    fill(queue_session, "delayed" if state == "delayed" else "ready", 20_000, name=name, later=state == "delayed")
    plan = explain(queue_session, statement("jobs", "claim"), schema, claim_values(10))
    assert plan.pages < 2 * before


def test_a_settle_of_500_walks_the_primary_key_only(stale: Rows, stale_schema: str) -> None:
    """DESIGN §4, S-102: never the index of running rows, never the whole table."""
    plan = explain(stale, statement("jobs", "settle"), stale_schema, settle_500(stale))
    assert plan.indexes("x_jobs") == KEY
    assert all(scan.loops <= 500 for scan in plan.of("x_jobs"))


def test_settlements_that_miss_walk_the_primary_key_too(stale: Rows, stale_schema: str) -> None:
    """S-104: asking why a settlement missed reads its row, never the table."""
    values = settle_500(stale)
    values["claim"] = [7] * len(values["claim"])
    plan = explain(stale, statement("jobs", "settle"), stale_schema, {**values, "resent": True})
    assert plan.indexes("x_jobs") == KEY


def test_a_renewal_of_500_walks_the_primary_key_only(stale: Rows, stale_schema: str) -> None:
    """N-038: one statement for all claims of a worker, each by its key."""
    plan = explain(stale, statement("jobs", "renew"), stale_schema, renew_500(stale))
    assert plan.indexes("x_jobs") == KEY


@pytest.mark.parametrize("name", ["claim", "settle", "renew"])
def test_a_plan_made_for_a_tiny_table_still_serves_a_large_one(queue_session: Rows, schema: str, name: str) -> None:
    """DESIGN §4: a prepared plan outlives the table's size, so it must not scan even when that was cheapest."""
    fill(queue_session, "ready", 3)
    fill(queue_session, "running", 3)
    queue_session.execute("alter table x_jobs set (autovacuum_enabled = off)")
    queue_session.execute("vacuum analyze x_jobs")
    values = {"claim": lambda _: claim_values(), "settle": settle_500, "renew": renew_500}[name]
    with prepared(queue_session, statement("jobs", name), schema, values(queue_session)) as order:
        run_plan(queue_session, order, values(queue_session))
        fill(queue_session, "done", 20_000)
        fill(queue_session, "ready", 1_000)
        fill(queue_session, "running", 500)
        grown = values(queue_session)
        plan = run_plan(queue_session, order, grown)
        missed = run_plan(queue_session, order, {**grown, "worker": ["w9"] * 500} if name != "claim" else grown)
    assert None not in plan.indexes("x_jobs") | missed.indexes("x_jobs")


def test_a_fenced_step_and_a_batch_s_close_read_single_rows(stale: Rows, stale_schema: str) -> None:
    """N-060, N-045: the job, the step and the ledger row, each by its primary key."""
    (claim,) = held(stale, 1)
    fenced = {"job_id": claim.job_id, "worker": "w1", "claim": 1}
    step = {"run_id": claim.job_id, "name": "s", "kind": "run", "status": "done", "output": "1", "error": None}
    plan = explain(stale, statement("steps", "put"), stale_schema, {**fenced, **step})
    assert plan.indexes("x_jobs") == KEY
    figures = dict.fromkeys(("samples", "marker", "checksum"))
    close = {
        "run_id": claim.job_id,
        "step": "p",
        "expected": "1",
        "value": "2",
        "moves": True,
        "rows": 1,
        "written": 1,
        "batches": 1,
        "cursor": "1",
        "active_seconds": 1.0,
        **figures,
    }
    with stale.transaction(force_rollback=True):
        stale.execute(
            """insert into x_job_steps (run_id, name, kind, status, output, started_at)
               select case n when 7 then %s else gen_random_uuid() end, 'p', 'checkpoint', 'done', '1', now()
               from generate_series(1, 20000) n""",
            [claim.job_id],
        )
        plan = explain(stale, statement("ledger.store", "progress"), stale_schema, {**fenced, **close})
    assert plan.indexes("x_jobs") == KEY
    assert plan.indexes("x_job_steps") == {"x_job_steps_pkey"}
    assert plan.indexes("x_backfills") <= {"x_backfills_pkey"}
    assert plan.pages < 60


def test_a_look_reads_a_bounded_number_of_rows(stale: Rows, stale_schema: str) -> None:
    """N-043: an idle worker's one statement seeks too."""
    info = dict.fromkeys(
        ("id", "host", "pid", "app_version", "concurrency", "state", "in_flight", "processed", "interrupted", "wake")
    )
    values = {
        **info,
        "own_queues": [],
        "own_names": [],
        "expires": 30.0,
        "proof": None,
        "queues": ["default"],
        "names": ["mail"],
    }
    values = {**values, "poll": [], "sample": False, "every": 15.0, "most": 1_000_000}
    plan = explain(stale, statement("workers", "look"), stale_schema, values)
    assert "x_jobs_claim_idx" in plan.indexes("x_jobs")
    assert None not in plan.indexes("x_jobs")


@pytest.mark.parametrize("name", ["cancel", "requeue", "remove"])
def test_steering_one_job_reads_its_row_by_the_primary_key(stale: Rows, stale_schema: str, name: str) -> None:
    """S-394, S-395: a partial index that looks empty to stale statistics is not walked for one row."""
    state = {"cancel": "ready", "requeue": "done", "remove": "ready"}[name]
    (row,) = stale.execute("select id from x_jobs where state = %s limit 1", [state])
    values = {"job_id": row[0], "reason": None, "from_step": None}
    plan = explain(stale, statement("steering", name), stale_schema, values)
    assert plan.indexes("x_jobs") <= {"x_jobs_pkey", "x_jobs_run_idx"}
    assert plan.pages < 100


def test_plans_keep_their_shape_under_a_snapshot_held_open(
    driver: PostgresDriver, other: Rows, queue_session: Rows, schema: str
) -> None:
    """DESIGN §4: dead rows that nothing may clean up make the seeks longer, and change no index."""
    fill(other, "ready", 3_000)
    with psycopg.connect(other.info.dsn) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from pg_class")
        options = ClaimOptions(queues=["default"], names=["mail"], worker_id="w1", limit=500)
        for _ in range(5):
            jobs = driver.control().jobs.claim(options).jobs
            driver.control().jobs.settle([Settlement(claim=claim_of(job), verdict=Done()) for job in jobs])
        other.execute("analyze x_jobs")
        plan = explain(queue_session, statement("jobs", "claim"), schema, claim_values(100))
        assert plan.indexes("x_jobs") == {"x_jobs_claim_idx", "x_jobs_pkey"}
        assert plan.pages < 10_000
    (row,) = other.execute("select count(*) from x_jobs where state = 'ready'").fetchall()
    assert row == (500,)
