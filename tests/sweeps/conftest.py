"""The fixtures of the sweeps' tests: the queue's tables once a session, the application's in a fresh schema a test."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from rowsweep.app.connecting import connect
from rowsweep.clock import real_monotonic
from rowsweep.jobs.registry import reset_jobs
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.sweeps.batch import patience
from tests import places
from tests.sweeps.field import QUEUE_TABLES, Field


@pytest.fixture(scope="session")
def queue_schema(server_dsn: str) -> Iterator[str]:
    """A schema with the queue's tables, for the session."""
    with places.queue_schema(server_dsn) as (name, _):
        yield name


@pytest.fixture
def field(dsn: str, connection: psycopg.Connection, queue_schema: str) -> Iterator[Field]:
    """A connected app that works nothing by itself, over empty queue tables and an empty schema."""
    reset_jobs()
    statements = [sql.SQL("delete from {}").format(sql.Identifier(queue_schema, table)) for table in QUEUE_TABLES]
    connection.execute(sql.SQL("; ").join(statements))
    app = connect(driver=PostgresDriver(dsn, schema=queue_schema), work=False, actor="tester", health="off")
    made = Field(app, dsn, connection, queue_schema)
    yield made
    for worker in made.workers:
        worker.stop(deadline_at=real_monotonic() + 5)
    for each in {app, made.app}:
        each.close()
    reset_jobs()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pauses after a passing error be short."""
    monkeypatch.setattr(patience, "_FIRST_SECONDS", 0.01)
    monkeypatch.setattr(patience, "_LONGEST_SECONDS", 0.05)
    monkeypatch.setattr(patience, "_LONGEST_LOST_SECONDS", 0.05)
