"""What claims list: every running job is in a list of its queue, and lists do not pile up."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.records import ClaimOptions, ClaimPass, Job, claim_of
from rowsweep.queue.verdicts import Done, Settlement
from tests.postgres.plans.explain import explain, statement
from tests.postgres.plans.test_hot_statements import fill
from tests.queue.world import ids_of, new_job

Rows = psycopg.Connection[Any]
UNLISTED = """
select count(*) from x_jobs j
where j.state = 'running' and not exists (select from x_job_claims c where c.queue = j.queue and j.id = any (c.jobs))"""
LAPSE = "update x_jobs set visible_at = now() - interval '1 s' where state = 'running'"


def claim(driver: PostgresDriver, limit: int, *, worker: str = "w1", names: tuple[str, ...] = ("mail",)) -> ClaimPass:
    """Make one pass, which looks for lapsed rows first."""
    return driver.control().jobs.claim(
        ClaimOptions(queues=["default"], names=list(names), worker_id=worker, limit=limit)
    )


def done(driver: PostgresDriver, jobs: list[Job]) -> None:
    """End the jobs."""
    settled = driver.control().jobs.settle([Settlement(claim=claim_of(job), verdict=Done()) for job in jobs])
    assert settled == [True] * len(jobs)


def lists(other: Rows) -> list[int]:
    """Answer how many jobs each list names."""
    return [row[0] for row in other.execute("select cardinality(jobs) from x_job_claims order by 1")]


def count(other: Rows, query: Any) -> int:
    """Answer one number."""
    (row,) = other.execute(query).fetchall()
    return int(row[0])


def test_a_list_goes_with_the_last_of_its_jobs(driver: PostgresDriver, other: Rows) -> None:
    """S-092: a look leaves no list behind of which nothing runs, so a queue's lists are those of what runs."""
    driver.stores().jobs.enqueue([new_job() for _ in range(30)])
    for _ in range(3):
        done(driver, claim(driver, 10).jobs)
    assert claim(driver, 10).jobs == []
    assert lists(other) == []


def test_what_runs_longer_than_the_others_of_its_list_is_still_found(driver: PostgresDriver, other: Rows) -> None:
    """S-092, S-093: its list makes way for a shorter one, and it is taken again once its worker is gone."""
    driver.stores().jobs.enqueue([new_job() for _ in range(40)])
    jobs = [job for _ in range(4) for job in claim(driver, 10).jobs]
    longer = [jobs[3], jobs[17]]
    done(driver, [job for job in jobs if job not in longer])
    assert claim(driver, 10).jobs == []
    assert lists(other) == [2]
    assert count(other, UNLISTED) == 0
    other.execute(LAPSE)
    assert ids_of(claim(driver, 10, worker="w2").jobs) == ids_of(longer)
    other.execute(LAPSE)
    assert ids_of(claim(driver, 1, worker="w3").jobs) == ids_of(longer[:1])
    assert count(other, UNLISTED) == 0


def test_a_list_that_another_look_is_dropping_is_left_to_it(driver: PostgresDriver, other: Rows) -> None:
    """S-092: two looks at once list what runs neither not at all nor without end."""
    driver.stores().jobs.enqueue([new_job() for _ in range(10)])
    jobs = claim(driver, 10).jobs
    done(driver, jobs[1:])
    options = ClaimOptions(queues=["default"], names=["mail"], worker_id="w2", limit=10)
    with other.transaction():
        assert driver.join(other).jobs.claim(options).jobs == []
        assert claim(driver, 10).jobs == []
    assert lists(other) == [1]
    with other.transaction(force_rollback=True):
        other.execute(LAPSE)
        assert ids_of(driver.join(other).jobs.claim(options).jobs) == ids_of(jobs[:1])
    assert count(other, UNLISTED) == 0


def test_a_look_leaves_a_caller_s_transaction_as_durable_as_it_was(driver: PostgresDriver, other: Rows) -> None:
    """S-092: what else is in it is the caller's, who may count on its commit."""
    driver.stores().jobs.enqueue([new_job()])
    done(driver, claim(driver, 1).jobs)
    options = ClaimOptions(queues=["default"], names=["mail"], worker_id="w2", limit=10)
    other.execute("set synchronous_commit = on")
    with other.transaction():
        assert driver.join(other).jobs.claim(options).jobs == []
        assert other.execute("show synchronous_commit").fetchone() == ("on",)
    assert lists(other) == []


def test_a_look_that_only_drops_lists_waits_for_no_disk(dsn: str, driver: PostgresDriver, other: Rows) -> None:
    """N-032: it stands between a job and its start; one that takes a job again commits as durably as a claim."""
    other.execute("create table heard (setting text)")
    other.execute(
        "create function hear() returns trigger language plpgsql as "
        "$$ begin insert into heard values (current_setting('synchronous_commit')); return null; end $$"
    )
    other.execute("create trigger hear after delete on x_job_claims for each statement execute function hear()")
    options = f"{conninfo_to_dict(dsn)['options']} -csynchronous_commit=on"
    durable = PostgresDriver(make_conninfo(dsn, options=options))
    durable.stores().jobs.enqueue([new_job() for _ in range(3)])
    done(durable, claim(durable, 1).jobs)
    (lapsing, *ended) = claim(durable, 2).jobs
    done(durable, ended)
    other.execute(LAPSE)
    assert ids_of(claim(durable, 3).jobs) == [lapsing.id]
    durable.close()
    assert [row[0] for row in other.execute("select setting from heard")] == ["off", "off", "on"]


def test_a_look_that_took_nothing_back_lists_nothing(driver: PostgresDriver, other: Rows) -> None:
    """S-092, N-030: a lapsed row whose name nobody here declares stays in its list, for those who do."""
    driver.stores().jobs.enqueue([new_job() for _ in range(3)])
    jobs = claim(driver, 3).jobs
    other.execute(LAPSE)
    before = other.execute("select id from x_job_claims").fetchall()
    assert claim(driver, 3, worker="w2", names=("other",)).jobs == []
    assert other.execute("select id from x_job_claims").fetchall() == before
    assert ids_of(claim(driver, 3, worker="w2").jobs) == ids_of(jobs)


def test_a_look_for_lapsed_rows_reads_no_waiting_ones(
    driver: PostgresDriver, other: Rows, queue_session: Rows, schema: str
) -> None:
    """S-092, N-031: it reads what claims have listed, each row by its key, whatever the statistics say."""
    other.execute("alter table x_jobs set (autovacuum_enabled = off)")
    fill(other, "done", 20_000)
    other.execute("vacuum analyze x_jobs")
    fill(other, "ready", 20_000)
    claim(driver, 200)
    other.execute(LAPSE)
    values: dict[str, Any] = {"queue": "default", "names": ["mail"], "busy_names": [], "busy_keys": [], "limit": 100}
    values["alone"] = True
    buried = {"drop_exhausted": [], "error": "lapsed", "shard": 1}
    taken = {"worker": "w2", "visibility": 30.0}
    plan = explain(queue_session, statement("jobs", "claim_lapsed"), schema, values | buried | taken)
    assert plan.indexes("x_jobs") == {"x_jobs_pkey"}
    assert plan.indexes("x_job_claims") <= {"x_job_claims_pkey"}
    assert plan.pages < 5_000
