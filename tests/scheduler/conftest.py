"""Nothing is declared before a test of this folder; one driver under test, with schedulers over it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rowsweep.jobs.registry import reset_jobs
from rowsweep.jobs.tasks.registry import reset_tasks
from rowsweep.queue.memory.driver import MemoryDriver
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.testing.clock import FakeClock
from tests.scheduler.world import START, Tower


@pytest.fixture(autouse=True)
def _nothing_declared() -> Iterator[None]:
    reset_jobs()
    reset_tasks()
    yield
    reset_jobs()
    reset_tasks()


@pytest.fixture
def memory() -> Iterator[Tower]:
    """A tower over memory, whose leases run on the test's clock too."""
    clock = FakeClock(START)
    tower = Tower(MemoryDriver(clock), clock)
    yield tower
    tower.close()


@pytest.fixture
def postgres(dsn: str) -> Iterator[Tower]:
    """A tower over a fresh schema."""
    driver = PostgresDriver(dsn)
    driver.install()
    tower = Tower(driver)
    yield tower
    tower.close()
    driver.close()


@pytest.fixture(params=["memory", "postgres"])
def tower(request: pytest.FixtureRequest) -> Tower:
    """A tower over each driver."""
    found: Tower = request.getfixturevalue(request.param)
    return found
