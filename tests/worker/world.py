"""The fixtures of the worker's and the steps' tests: one driver under test, nothing declared, nothing queued."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from rowsweep.jobs import ambient
from rowsweep.jobs.registry import reset_jobs
from rowsweep.queue.memory.driver import MemoryDriver
from tests.places import dsn_in, queue_schema
from tests.worker.shop import MemoryHands, PostgresHands, Shop, ShopEnqueuer

TABLES = ("x_jobs", "x_job_steps", "x_job_events", "x_backfills", "x_job_workers", "x_job_counters", "x_job_leases")


@pytest.fixture(scope="session")
def queue_dsn(server_dsn: str) -> Iterator[str]:
    """A schema with the queue's tables and one of an application's, for the session."""
    with queue_schema(server_dsn) as (name, connection):
        connection.execute("create table marks (id bigint generated always as identity primary key, mark text)")
        yield dsn_in(server_dsn, name)


@pytest.fixture
def queue_connection(queue_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the test's own, over empty tables."""
    with psycopg.connect(queue_dsn, autocommit=True) as connection:
        statements = [sql.SQL("delete from {}").format(sql.Identifier(table)) for table in (*TABLES, "marks")]
        connection.execute(sql.SQL("; ").join(statements))
        yield connection


@pytest.fixture
def postgres(queue_dsn: str, queue_connection: psycopg.Connection[Any]) -> Iterator[Shop]:
    """A shop over Postgres."""
    from rowsweep.queue.postgres.driver import PostgresDriver

    driver = PostgresDriver(queue_dsn)
    yield from opened(Shop("postgres", driver, PostgresHands(queue_connection)))
    driver.close()


@pytest.fixture
def memory() -> Iterator[Shop]:
    """A shop over memory."""
    driver = MemoryDriver()
    yield from opened(Shop("memory", driver, MemoryHands(driver)))


@pytest.fixture(params=["memory", "postgres"])
def shop(request: pytest.FixtureRequest) -> Shop:
    """A shop over each driver."""
    found: Shop = request.getfixturevalue(request.param)
    return found


def opened(shop: Shop) -> Iterator[Shop]:
    """Connect the shop for enqueues, and stop its workers afterwards."""
    reset_jobs()
    ambient.use_enqueuer(ShopEnqueuer(shop.driver))
    yield shop
    from rowsweep.clock import real_monotonic

    for worker in shop.workers:
        worker.stop(deadline_at=real_monotonic() + 5)
    ambient.use_enqueuer(None)
    reset_jobs()
