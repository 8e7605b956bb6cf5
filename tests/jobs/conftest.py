"""Nothing is declared before a test of this folder, nor after it; some of them are connected."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import rowsweep as rs
from rowsweep.jobs.registry import reset_jobs


@pytest.fixture(autouse=True)
def _nothing_declared() -> Iterator[None]:
    reset_jobs()
    yield
    reset_jobs()


@pytest.fixture
def memory_app() -> Iterator[rs.App]:
    """An app over the memory driver that works nothing."""
    app = rs.connect(driver=rs.MemoryDriver(), work=False, actor="ann@shop")
    yield app
    app.close()


@pytest.fixture
def postgres_app(dsn: str) -> Iterator[rs.App]:
    """An app over a fresh schema that works nothing."""
    driver = rs.PostgresDriver(dsn)
    driver.install()
    app = rs.connect(driver=driver, work=False, actor="ann@shop")
    yield app
    app.close()


@pytest.fixture(params=["memory", "postgres"])
def app(request: pytest.FixtureRequest) -> rs.App:
    """A connected app over each driver."""
    found: rs.App = request.getfixturevalue(f"{request.param}_app")
    return found
