"""Ends of runs across processes that are killed: no job is told of twice, and counts never disagree with rows."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import pytest

from rowsweep.jobs.declare import job
from rowsweep.jobs.handle import JobHandle
from rowsweep.jobs.registry import reset_jobs
from rowsweep.queue.postgres.driver import PostgresDriver
from tests.acceptance.harness import Process, Site, until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

APPLICATION = Path(__file__).with_name("told.py")
TOLD = """
create table told (
  id bigint generated always as identity primary key, job_id uuid not null, outcome text not null, pid integer not null)
"""
JOBS = 400


def enqueue(site: Site) -> None:
    """Install the tables and enqueue the jobs."""
    from rowsweep.app.connecting import connect
    from rowsweep.queue.postgres.install import install

    install(site.dsn)
    site.connection.execute(TOLD)
    app = connect(site.dsn, work=False, actor="test")
    try:
        act: JobHandle[Any, Any] = job("act", print, tenant="none", input=int)
        act.enqueue_many(list(range(JOBS)))
    finally:
        app.close()
        reset_jobs()


def numbers(site: Site, text: str) -> dict[str, int]:
    """Answer counts by word."""
    return {row["word"]: row["amount"] for row in site.connection.execute(text).fetchall()}


def states(site: Site) -> dict[str, int]:
    """Answer how many jobs are in each state."""
    return numbers(site, "select state as word, count(*) as amount from x_jobs group by 1")


def is_over(site: Site) -> bool:
    """Say whether every job has ended for good."""
    return states(site).keys() <= {"done", "dead"}


def counted(site: Site) -> dict[str, int]:
    """Answer what the counters say, over their shards and minutes."""
    driver = PostgresDriver(site.dsn)
    try:
        store = driver.stores().counters
        assert store is not None
        buckets = store.list(tier="day")
        return {name: sum(getattr(bucket, name) for bucket in buckets) for name in ("completed", "dead", "retried")}
    finally:
        driver.close()


def worker(site: Site, number: int) -> Process:
    """Start a worker."""
    return site.start(f"w{number}", [str(APPLICATION), f"w{number}"])


@pytest.mark.parametrize("kills", [0, 8])
def test_no_end_is_told_twice_and_each_is_counted_once(site: Site, kills: int) -> None:
    """S-404, S-413, D-38, N-036: what a kill between the two loses is lost, and all else is told once."""
    enqueue(site)
    workers = [worker(site, number) for number in range(2)]
    for number in range(kills):
        ended = JOBS * (number + 1) // (kills + 1)
        until(lambda ended=ended: JOBS - states(site).get("ready", 0) >= ended, site.shown)  # type: ignore[misc]
        workers.pop(random.randrange(2)).kill()
        workers.append(worker(site, 2 + number))
    until(lambda: is_over(site), site.shown)
    for left in workers:
        left.until_logged("jobs.worker.started")
        left.send(signal.SIGTERM)
        assert left.wait(60) == 0

    rows = states(site)
    assert rows == {"done": rows["done"], "dead": JOBS - rows["done"]}
    assert JOBS // 10 <= rows["dead"] < JOBS // 2
    figures = counted(site)
    assert (figures["completed"], figures["dead"]) == (rows["done"], rows["dead"])
    twice = "select job_id::text as word, count(*) as amount from told group by 1 having count(*) > 1"
    assert numbers(site, twice) == {}
    if not kills:
        assert numbers(site, "select outcome as word, count(*) as amount from told group by 1") == {
            "completed": rows["done"],
            "dead-lettered": rows["dead"],
        }
    told = numbers(site, "select 'told' as word, count(*) as amount from told")["told"]
    assert JOBS - told <= kills * 110, "no more than a worker may be behind"
