"""A process that is stopped at the worst of moments keeps its job from nobody, and knows when it wakes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.acceptance.frozen.stopping import POINTS
from tests.acceptance.harness import Process, Site, until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

APPLICATION = Path(__file__).with_name("stopping.py")


@pytest.fixture
def frozen(site: Site, request: pytest.FixtureRequest) -> Process:
    """The worker that was given the one job, stopped where the test's parameter says."""
    from rowsweep.queue.postgres.driver import PostgresDriver
    from tests.queue.world import new_job

    driver = PostgresDriver(site.dsn)
    driver.install()
    site.connection.execute("create table acts (pid integer not null)")
    driver.stores().jobs.enqueue([new_job(name="act", input=None)])
    driver.close()
    first = site.start("first", [str(APPLICATION), "first", "--stop-at", request.param, "--visibility", "1s"])
    until(lambda: is_stopped(first), lambda: f"its stop\n{first.log}")
    return first


def is_stopped(process: Process) -> bool:
    """Say whether a process stands still."""
    assert process.code is None, process.log
    how = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, how) is not None


@pytest.mark.parametrize("frozen", ["claimed", "granted"], indirect=True)
def test_a_holder_stopped_behind_its_claim_wakes_to_a_lost_lease(site: Site, frozen: Process) -> None:
    """S-322, S-323, S-325: whether or not it had the slot; it settles nothing of another's."""
    site.start("second", [str(APPLICATION), "second"])
    done = site.until_state("done")
    assert (done["claims"], done["attempt"]) == (2, 2)
    frozen.wake()
    lost = frozen.until_logged("jobs.lease.lost")
    assert (lost["claim"], lost["code"]) == (1, "X_JOB_LEASE_LOST")
    assert_done_once_by_another(site, frozen)
    assert frozen.events("jobs.settle.unowned") == frozen.events("jobs.worker.shed") == []


@pytest.mark.parametrize("frozen", ["fenced"], indirect=True)
def test_a_holder_stopped_under_its_fence_keeps_the_job_s_row_for_little_longer_than_its_lease(
    site: Site, frozen: Process
) -> None:
    """S-092, S-323, N-060: the server ends its transaction; what it wrote is not there."""
    site.start("second", [str(APPLICATION), "second"])
    site.until_state("done", seconds=40)
    frozen.wake()
    until(lambda: frozen.events("jobs.lease.lost") or frozen.events("jobs.settle.unowned"), lambda: frozen.log)
    assert_done_once_by_another(site, frozen)


def assert_done_once_by_another(site: Site, frozen: Process) -> None:
    """Assert that the job's one effect is that of the process that took it over."""
    (act,) = site.connection.execute("select pid from acts").fetchall()
    assert act["pid"] != frozen.pid
    job = site.job()
    assert (job["state"], job["claims"], job["last_error"]) == ("done", 2, None)


def test_each_point_is_one_that_the_driver_passes() -> None:
    """The names that the application stops at are methods of the stores."""
    assert all(callable(getattr(store, name)) for store, name, _ in POINTS.values())
