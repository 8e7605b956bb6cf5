"""A driver over a fresh schema of its own, and a second session to hold locks with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import tuple_row

from rowsweep.queue.postgres.connections import configure
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.postgres.install import install


@pytest.fixture
def driver(dsn: str) -> Iterator[PostgresDriver]:
    """A driver whose tables are installed and empty."""
    install(dsn)
    made = PostgresDriver(dsn)
    yield made
    made.close()


@pytest.fixture
def other(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """Another session in autocommit mode."""
    with psycopg.connect(dsn, autocommit=True, row_factory=tuple_row) as connection:
        yield connection


@pytest.fixture
def queue_session(driver: PostgresDriver, dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A session set up as the driver's control connections are, which prepares only what it is told to."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        configure(connection, control=True, pooler=False)
        connection.execute("set statement_timeout = 0")
        connection.prepare_threshold = None
        yield connection
