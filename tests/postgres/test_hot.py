"""Writes that must stay HOT: a renewal or a checkpoint that touched an index would bloat it for as long as it runs."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.records import ClaimOptions, Job, claim_of
from rowsweep.queue.stores.ledger import SweepTotals
from rowsweep.queue.stores.steps import StepPut
from tests.queue.world import batch_close, new_backfill, new_job

TIMES = 20
Session = psycopg.Connection[Any]


@pytest.fixture
def job(driver: PostgresDriver) -> Job:
    """A sweep's job under a claim on its second attempt, with its ledger row."""
    driver.stores().jobs.enqueue([new_job()])
    options = ClaimOptions(queues=["default"], names=["mail"], worker_id="w1", limit=1)
    (claimed,) = driver.control().jobs.claim(options).jobs
    ledger = driver.stores().ledger
    assert ledger is not None
    ledger.start(new_backfill(claimed.run_id))
    return claimed


def updates(other: Session, table: str) -> tuple[int, int]:
    """Answer `(updates, HOT updates)` of a table so far."""
    other.execute("select pg_stat_clear_snapshot()")
    row = other.execute("select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relid = %s::regclass", [table])
    found: tuple[int, int] | None = row.fetchone()
    assert found is not None
    return found


def counted(driver: PostgresDriver, other: Session, table: str, at_least: int) -> tuple[int, int]:
    """Answer the updates once the driver's sessions, which it ends, have reported theirs."""
    driver.close()
    other.execute("select pg_stat_force_next_flush()")
    for _ in range(5_000):
        if updates(other, table)[0] >= at_least:
            return updates(other, table)
    pytest.fail(f"{at_least} updates of {table} were expected, {updates(other, table)} were counted")


def measured(driver: PostgresDriver, other: Session, table: str, before: tuple[int, int]) -> tuple[int, int]:
    """Answer the updates made since `before`."""
    now = counted(driver, other, table, before[0] + TIMES)
    return now[0] - before[0], now[1] - before[1]


def test_a_renewal_is_a_hot_update(driver: PostgresDriver, other: Session, job: Job) -> None:
    """N-029, N-038: visible_at is in no index, and updated_at stays."""
    before = counted(driver, other, "x_jobs", 1)
    for _ in range(TIMES):
        assert driver.control().jobs.renew([claim_of(job)], visibility_seconds=30) == [True]
    assert measured(driver, other, "x_jobs", before) == (TIMES, TIMES)


def test_progress_is_a_hot_update(driver: PostgresDriver, other: Session, job: Job) -> None:
    """N-029: so is a progress write."""
    before = counted(driver, other, "x_jobs", 1)
    for at in range(TIMES):
        assert driver.stores().jobs.record_progress(claim_of(job), {"current": at})
    assert measured(driver, other, "x_jobs", before) == (TIMES, TIMES)


def test_a_claim_is_a_hot_update(driver: PostgresDriver, other: Session) -> None:
    """DESIGN §4: a claim makes no index entry; a waiting row has left it room on its page."""
    driver.stores().jobs.enqueue([new_job() for _ in range(200)])
    before = updates(other, "x_jobs")
    options = ClaimOptions(queues=["default"], names=["mail"], worker_id="w1" * 20, limit=50)
    for _ in range(4):
        assert len(driver.control().jobs.claim(options).jobs) == 50
    now = counted(driver, other, "x_jobs", before[0] + 200)
    assert (now[0] - before[0], now[1] - before[1]) == (200, 200)


def test_a_lapsed_row_is_taken_again_by_a_hot_update(driver: PostgresDriver, other: Session, job: Job) -> None:
    """N-029: a re-claim changes no state, so it sets no updated_at."""
    other.execute("update x_jobs set max_attempts = 100, visible_at = now() - interval '1 minute'")
    before = counted(driver, other, "x_jobs", 2)
    options = ClaimOptions(queues=["default"], names=["mail"], worker_id="w2", limit=1, visibility_seconds=-1.0)
    for _ in range(TIMES):
        assert len(driver.control().jobs.claim(options).jobs) == 1
    assert measured(driver, other, "x_jobs", before) == (TIMES, TIMES)


def test_a_batch_s_close_makes_hot_updates_only(driver: PostgresDriver, other: Session, job: Job) -> None:
    """N-045, N-060, N-077: checkpoint and ledger row are replaced in place; the attempt is reset only once."""
    other.execute("update x_jobs set attempt = 3")
    before = {"x_jobs": counted(driver, other, "x_jobs", 2)}
    before |= {table: updates(other, table) for table in ("x_job_steps", "x_backfills")}
    expected = None
    for at in range(TIMES + 1):
        totals = SweepTotals(rows=at, written=at, batches=at, cursor=[str(at)], active_seconds=0.25 * at)
        value = {"index": at, "cursor": [str(at)], "rows": at}
        ledger = driver.stores().ledger
        assert ledger is not None
        closed = ledger.progress(batch_close(job, expected=expected, value=value, totals=totals))
        assert (closed.open, closed.held, closed.expected) == (True, True, True)
        expected = value
    made = {table: measured(driver, other, table, before[table]) for table in ("x_job_steps", "x_backfills")}
    assert made == {"x_job_steps": (TIMES, TIMES), "x_backfills": (TIMES + 1, TIMES + 1)}
    assert updates(other, "x_jobs")[0] - before["x_jobs"][0] == 1


def test_a_step_put_again_is_a_hot_update(driver: PostgresDriver, other: Session, job: Job) -> None:
    """N-045: a checkpoint's put is one row updated in place."""
    put = StepPut(run_id=job.run_id, name="cp", kind="checkpoint", status="done", output=0)
    driver.stores().steps.put(put, claim_of(job))
    before = updates(other, "x_job_steps")
    for _ in range(TIMES):
        driver.stores().steps.put(put, claim_of(job))
    assert measured(driver, other, "x_job_steps", before) == (TIMES, TIMES)
