"""A scheduler of the connected app."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

import rowsweep as rs
from rowsweep.clock import SystemClock
from rowsweep.queue.records import JobFilter
from rowsweep.testing.clock import FakeClock
from tests.scheduler.world import mail, wait_for


@pytest.fixture(params=["memory", "postgres"])
def app(request: pytest.FixtureRequest) -> Iterator[rs.App]:
    """A connected app over each driver, working nothing yet."""
    if request.param == "memory":
        driver: Any = rs.MemoryDriver()
    else:
        driver = rs.PostgresDriver(request.getfixturevalue("dsn"))
        driver.install()
    connected = rs.connect(driver=driver, work=False)
    yield connected
    connected.close()


def missed(app: rs.App) -> None:
    """Declare a task that was missed three minutes ago."""
    letter = mail()
    rs.task("minutely", cron="* * * * *", tz="UTC", enqueue=lambda at: [(letter, f"{at:%H:%M}")], catch_up="run-once")
    schedules = app.stores().schedules
    assert schedules is not None
    schedules.mark_fired("minutely", SystemClock().now() - timedelta(minutes=3))


def done(app: rs.App) -> int:
    inspection = app.stores().inspection
    assert inspection is not None
    return len(inspection.list(JobFilter(name="mail", state="done")))


def test_a_kernel_that_works_with_a_scheduler_fires_and_runs_its_tasks(app: rs.App) -> None:
    """N-072, S-236: under a lease, which closing gives back."""
    missed(app)
    rs.work(scheduler=True)
    rs.work(scheduler=True)
    wait_for(lambda: done(app))
    leader = app.stores().leader
    assert leader is not None
    assert leader.get("scheduler") is not None
    app.close()
    assert leader.get("scheduler") is None


def test_work_alone_leaves_tasks_to_a_fleet(app: rs.App) -> None:
    """N-072: a kernel never takes the lead unasked."""
    missed(app)
    rs.work()
    leader = app.stores().leader
    assert leader is not None
    assert leader.get("scheduler") is None
    assert app.scheduler().state == "idle"


def test_an_apps_scheduler_takes_another_leader(app: rs.App) -> None:
    """S-256, S-433."""
    missed(app)
    made = app.scheduler(leader=rs.SoleLeader(), drain_on_shutdown=False)
    (one,) = made.tick()
    assert (one.task, one.catch_up) == ("minutely", True)
    made.stop()


def test_a_sweep_is_fired_like_any_job(dsn: str, connection: psycopg.Connection[Any]) -> None:
    """S-007, S-220, N-072: its ledger row comes with its pass."""
    connection.execute("create table items (id bigint primary key, n integer)")
    connection.execute("insert into items select n, n from generate_series(1, 50) n")
    driver = rs.PostgresDriver(dsn)
    driver.install()
    app = rs.connect(driver=driver, work=False)
    try:
        sweep = rs.backfill("twice", rows=rs.Rows("items"), set={"n": "n * 2"})
        task = rs.task("yearly", cron="@yearly", tz="UTC", enqueue=lambda _at: [(sweep, None)])
        scheduler = app.scheduler(clock=(clock := FakeClock()))
        scheduler.tick()
        clock.move_to(scheduler.next_run_for(task))
        (fired,) = scheduler.tick()
        assert [name for name, _ in fired.jobs] == ["twice"]
        app.work()
        wait_for(lambda: [run.status for run in rs.runs(name="twice")] == ["done"], seconds=30)
    finally:
        app.close()
    assert connection.execute("select sum(n) from items").fetchone() == (50 * 51,)
