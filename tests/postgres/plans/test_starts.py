"""Where a pass begins: behind what was passed over, without missing what is new."""

from __future__ import annotations

import json
import uuid
from typing import Any

import psycopg

from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.records import ClaimOptions, ClaimPass, claim_of
from rowsweep.queue.verdicts import Done, Settlement
from tests.postgres.plans.explain import explain, statement
from tests.postgres.plans.test_hot_statements import claim_values, fill
from tests.queue.world import ids_of, new_job

Rows = psycopg.Connection[Any]


def block(connection: Rows, amount: int, *, priority: int = 0) -> None:
    """Put rows of one key before all others, due a minute ago."""
    fill(connection, "ready", amount, priority=priority)
    connection.execute(
        "update x_jobs set concurrency_key = 'k', run_at = now() - interval '1 minute' where concurrency_key is null"
    )


def claim(driver: PostgresDriver, starts: Any = None, *, limit: int = 10, **more: Any) -> ClaimPass:
    """Claim while the key is busy."""
    given: dict[str, Any] = {"names": ["mail", "post"], "busy": [("mail", "k")], "lapsed": False}
    return driver.control().jobs.claim(
        ClaimOptions(queues=["default"], worker_id="w1", limit=limit, starts=starts, **(given | more))
    )


def test_a_pass_that_is_given_starts_does_not_walk_the_rows_before_them(
    driver: PostgresDriver, queue_session: Rows, schema: str
) -> None:
    """N-031, N-021: thousands of rows of a busy key cost one pass, not every one."""
    block(queue_session, 20_000)
    driver.stores().jobs.enqueue([new_job() for _ in range(100)])
    queue_session.execute("analyze x_jobs")
    values = {**claim_values(10), "busy_keys": ["mail:k"]}
    head = explain(queue_session, statement("jobs", "claim"), schema, values)
    starts = json.dumps(claim(driver).starts)
    behind = explain(queue_session, statement("jobs", "claim"), schema, {**values, "starts": starts})
    assert behind.indexes("x_jobs") == head.indexes("x_jobs") == {"x_jobs_claim_idx", "x_jobs_pkey"}
    assert behind.pages * 10 < head.pages
    assert sum(scan.removed for scan in behind.of("x_jobs")) < 100


def test_where_nothing_was_left_the_next_pass_walks_nothing_either(
    driver: PostgresDriver, queue_session: Rows, schema: str
) -> None:
    """N-031: a level that has busy rows only is passed over as a whole."""
    block(queue_session, 20_000)
    passed = claim(driver)
    assert passed.jobs == []
    values = {**claim_values(10), "busy_keys": ["mail:k"], "starts": json.dumps(passed.starts)}
    assert sum(scan.removed for scan in explain(queue_session, statement("jobs", "claim"), schema, values).scans) < 100


def test_a_pass_that_found_more_than_enough_passes_over_the_busy_level_too(
    driver: PostgresDriver, queue_session: Rows, schema: str
) -> None:
    """N-031, N-021: another name's plenty does not hide that nothing was left of this one."""
    block(queue_session, 20_000)
    driver.stores().jobs.enqueue([new_job("post") for _ in range(200)])
    passed = claim(driver)
    assert len(passed.jobs) == 10
    values = {**claim_values(10, "mail", "post"), "busy_keys": ["mail:k"], "starts": json.dumps(passed.starts)}
    assert sum(scan.removed for scan in explain(queue_session, statement("jobs", "claim"), schema, values).scans) < 100
    assert len(claim(driver, passed.starts, limit=500).jobs) == 190


def test_what_is_new_is_found_from_any_start(driver: PostgresDriver, queue_session: Rows) -> None:
    """N-031, D-16: at the end, at a higher priority, of another name, and what was under way when the pass began."""
    block(queue_session, 50)
    jobs = driver.stores().jobs
    with psycopg.connect(queue_session.info.dsn) as slow:
        under_way = driver.join(slow).jobs.enqueue([new_job()])[0].id
        passed = claim(driver)
        assert passed.jobs == []
    late = jobs.enqueue([new_job()])[0].id
    urgent = jobs.enqueue([new_job(priority=5)])[0].id
    most = jobs.enqueue([new_job(priority=9)])[0].id
    other = jobs.enqueue([new_job("post")])[0].id
    assert ids_of(claim(driver, passed.starts).jobs) == [most, urgent, under_way, late, other]


def test_a_chain_of_passes_takes_every_row_once_and_in_order(driver: PostgresDriver, queue_session: Rows) -> None:
    """N-031, D-16: with several levels, and with rows left over from the scan."""
    block(queue_session, 300)
    jobs = driver.stores().jobs
    wanted = [result.id for level in (7, 3, 0) for result in jobs.enqueue([new_job(priority=level) for _ in range(90)])]
    starts, taken = None, []
    while (passed := claim(driver, starts, limit=7)).jobs:
        starts = passed.starts
        taken += ids_of(passed.jobs)
        driver.control().jobs.settle([Settlement(claim=claim_of(job), verdict=Done()) for job in passed.jobs])
    assert taken == wanted
    head = claim(driver, busy=[], limit=500)
    assert len(head.jobs) == 300


def test_a_name_that_was_left_out_is_sought_from_its_head(driver: PostgresDriver) -> None:
    """N-021: its cap was full in the pass before."""
    jobs = driver.stores().jobs
    ids = [result.id for result in jobs.enqueue([new_job("post"), new_job("mail"), new_job("post", priority=-3)])]
    passed = claim(driver, busy=[("post", None)])
    assert ids_of(passed.jobs) == [ids[1]]
    assert ids_of(claim(driver, passed.starts, busy=[]).jobs) == [ids[0], ids[2]]


def test_starts_of_another_time_or_place_do_no_harm(driver: PostgresDriver) -> None:
    """N-031: names that nobody declares here are ignored."""
    strange = [{"name": "gone", "priority": 1, "run_at": "2030-01-01T00:00:00Z", "id": str(uuid.uuid4())}]
    job_id = driver.stores().jobs.enqueue([new_job()])[0].id
    assert ids_of(claim(driver, strange).jobs) == [job_id]
