"""The claim of few live rows: quicker where that is so, and nothing where it is not."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.postgres.stores.jobs import FEW
from rowsweep.queue.records import ClaimOptions, ClaimPass
from tests.postgres.plans.explain import explain, statement
from tests.postgres.plans.test_hot_statements import fill
from tests.queue.world import ids_of, new_job

Rows = psycopg.Connection[Any]


def claim(driver: PostgresDriver, *names: str, limit: int = 10, few: bool = True) -> ClaimPass:
    """Claim as an idle worker does."""
    options = ClaimOptions(
        queues=["default"], names=names or ("mail",), worker_id="w1", limit=limit, lapsed=False, few=few
    )
    return driver.control().jobs.claim(options)


def values(*names: str) -> dict[str, object]:
    """Answer the statement's values."""
    return {
        "queue": "default",
        "names": list(names or ("mail",)),
        "worker": "w1",
        "visibility": 30.0,
        "limit": 10,
        "few": FEW,
    }


def test_few_rows_are_claimed_by_it(driver: PostgresDriver) -> None:
    """D-16, N-032: in order, with the next instant."""
    later, due, urgent = new_job(delay_seconds=60.0), new_job(), new_job("post", priority=3)
    driver.stores().jobs.enqueue([later, due, urgent])
    passed = claim(driver, "mail", "post")
    assert passed.few
    assert ids_of(passed.jobs) == [urgent.id, due.id]
    assert passed.next_run_at is not None
    again = claim(driver, "mail", "post")
    assert (again.few, again.jobs, again.next_run_at) == (True, [], passed.next_run_at)


@pytest.mark.parametrize("live", [FEW - 1, FEW])
def test_where_there_may_be_more_the_usual_claim_is_made(driver: PostgresDriver, live: int) -> None:
    """D-16: what lies behind the first rows may be due before them, so none of them is taken."""
    waiting = [new_job(priority=5, delay_seconds=3600.0) for _ in range(live - 1)]
    due = new_job(priority=-5)
    driver.stores().jobs.enqueue([*waiting, due])
    passed = claim(driver)
    assert passed.few == (live < FEW)
    assert ids_of(passed.jobs) == [due.id]
    (job,) = passed.jobs
    assert (job.attempt, job.claims) == (1, 1)


def test_rows_of_another_name_count_too(driver: PostgresDriver) -> None:
    """N-031: the first rows are those of all names together."""
    driver.stores().jobs.enqueue([new_job(name) for name in ("mail", "post") for _ in range(FEW // 2)])
    passed = claim(driver, "mail", "post", limit=2 * FEW)
    assert not passed.few
    assert len(passed.jobs) == FEW


def test_a_row_that_is_locked_is_left_to_who_holds_it(driver: PostgresDriver, other: Rows) -> None:
    """S-091: skipped, never waited for."""
    held, free = new_job(), new_job()
    driver.stores().jobs.enqueue([held, free])
    with other.transaction():
        other.execute("select id from x_jobs where id = %s for update", [held.id])
        assert ids_of(claim(driver).jobs) == [free.id]
    assert ids_of(claim(driver).jobs) == [held.id]


def test_two_workers_share_what_there_is(driver: PostgresDriver) -> None:
    """S-091: no job is handed out twice."""
    jobs = [new_job() for _ in range(FEW - 1)]
    driver.stores().jobs.enqueue(jobs)
    taken: list[Any] = []

    def take() -> None:
        while passed := claim(driver, limit=1).jobs:
            taken.extend(passed)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(ids_of(taken)) == sorted(job.id for job in jobs)


def test_what_it_takes_is_listed_for_a_look_at_lapsed_rows(driver: PostgresDriver, queue_session: Rows) -> None:
    """S-092: each running row is in a list of its queue."""
    driver.stores().jobs.enqueue([job := new_job()])
    claim(driver)
    queue_session.execute("update x_jobs set visible_at = now() - %s", [timedelta(seconds=1)])
    options = ClaimOptions(queues=["default"], names=["mail"], worker_id="w2", limit=10)
    assert ids_of(driver.control().jobs.claim(options).jobs) == [job.id]


@pytest.mark.parametrize("state", ["ready", "delayed", "running", "done"])
def test_it_reads_a_bounded_number_of_rows(queue_session: Rows, schema: str, state: str) -> None:
    """N-031: whatever there is many of, it seeks the claims' index and stops."""
    fill(queue_session, "ready", 3)
    fill(queue_session, state, 20_000, name="mail", priority=1, later=state == "delayed")
    queue_session.execute("analyze x_jobs")
    plan = explain(queue_session, statement("jobs", "claim_few"), schema, values("mail", "post"))
    assert plan.indexes("x_jobs") <= {"x_jobs_claim_idx", "x_jobs_pkey"}
    assert sum(scan.removed for scan in plan.of("x_jobs")) == 0
    assert plan.pages < 300
