"""A scheduler of the connected app."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.clock import SystemClock
from rowsweep.queue.records import JobFilter
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
