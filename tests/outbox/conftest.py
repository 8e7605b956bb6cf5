"""A queue's database and an application's own beside it, nothing declared, and a connected app."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import rowsweep as rs
from rowsweep.jobs.registry import reset_jobs
from rowsweep.queue.postgres.outbox.install import install_outbox
from tests.places import own_database


@pytest.fixture(autouse=True)
def _nothing_declared() -> Iterator[None]:
    reset_jobs()
    yield
    reset_jobs()


@pytest.fixture
def job() -> rs.JobHandle[Any, Any]:
    """A job that takes a number and does nothing."""
    return rs.job("send", lambda _ctx, _value: None, tenant="none", input=int)


@pytest.fixture
def queue_app(dsn: str) -> Iterator[rs.App]:
    """An app over a fresh schema that works nothing."""
    driver = rs.PostgresDriver(dsn)
    driver.install()
    app = rs.connect(driver=driver, work=False)
    yield app
    app.close()


@pytest.fixture
def memory_app() -> Iterator[rs.App]:
    """An app over memory that works nothing."""
    app = rs.connect(driver=rs.MemoryDriver(), work=False)
    yield app
    app.close()


@pytest.fixture(params=["memory", "queue"])
def app(request: pytest.FixtureRequest) -> rs.App:
    """A connected app over each driver."""
    found: rs.App = request.getfixturevalue(f"{request.param}_app")
    return found


@pytest.fixture(scope="session")
def shop_database(server_dsn: str) -> Iterator[str]:
    """Another database of the server, with an application's table and an outbox alone."""
    with own_database(server_dsn) as dsn:
        install_outbox(dsn)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("create table orders (id bigint primary key)")
        yield dsn


@pytest.fixture
def shop_dsn(shop_database: str) -> str:
    """That database, its tables empty."""
    with psycopg.connect(shop_database, autocommit=True) as connection:
        connection.execute("delete from x_outbox; delete from orders")
    return shop_database


@pytest.fixture
def shop(shop_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """The application's connection to its own database."""
    with psycopg.connect(shop_dsn) as connection:
        yield connection


def queued(app: rs.App) -> list[Any]:
    """Answer the inputs of the queue's jobs, sorted."""
    from rowsweep.queue.records import JobFilter

    inspection = app.stores().inspection
    assert inspection is not None
    return sorted(row.input for row in inspection.list(JobFilter(), limit=200))


def staged(dsn: str) -> list[Any]:
    """Answer the inputs of the rows staged in a database and not published, sorted."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute("select input from x_outbox where published_at is null").fetchall()
    return sorted(row[0] for row in found)
