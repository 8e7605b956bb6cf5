"""The driver under test: every test of this folder runs over memory and over Postgres (S-436)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from rowsweep.queue.memory.driver import MemoryDriver
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.stores.counters import CounterBucket
from rowsweep.testing.clock import FakeClock
from tests.places import dsn_in, queue_schema
from tests.queue.world import World
from tests.threads import keep_running

INSTANTS: dict[LiteralString, list[LiteralString]] = {
    "x_jobs": ["run_at", "visible_at", "created_at", "updated_at", "started_at"],
    "x_job_steps": ["started_at", "completed_at", "wake_at"],
    "x_backfills": ["started_at", "updated_at", "finished_at"],
    "x_job_events": ["published_at", "expires_at"],
    "x_job_workers": ["started_at", "seen_at", "expires_at"],
    "x_scheduler_leader": ["acquired_at", "expires_at"],
    "x_job_leases": ["expires_at"],
    "x_job_pauses": ["paused_at"],
    "x_outbox": ["run_at", "created_at", "lease_until", "published_at", "dead_at"],
}
TABLES = (*INSTANTS, "x_job_counters", "x_scheduler_state", "x_job_claims")


class MovingClock(FakeClock):
    """Move by a microsecond with each reading, as a database's clock does from statement to statement."""

    def now(self) -> datetime:
        return self.advance(timedelta(microseconds=1))


class MemoryHands:
    """Move the fake clock, and reach into the driver's rows."""

    def __init__(self, driver: MemoryDriver, clock: FakeClock) -> None:
        self._state = driver._state
        self._clock = clock

    def now(self) -> datetime:
        return self._clock.now()

    def pass_time(self, seconds: float) -> None:
        self._clock.advance(timedelta(seconds=seconds))

    def edit(self, job_id: UUID, **columns: Any) -> None:
        self._state.write(replace(self._state.jobs[job_id], **columns))

    def put_counter(self, row: CounterBucket, *, shard: int = 0) -> None:
        """Keep one row a bucket: there are no shards here."""
        former = self._state.counters.get((row.tier, row.bucket_at, row.name))
        if former is not None:
            row = replace(
                row,
                completed=former.completed + row.completed,
                run_ms=former.run_ms + row.run_ms,
                max_run_ms=max(former.max_run_ms, row.max_run_ms),
            )
        self._state.counters[row.tier, row.bucket_at, row.name] = row


class PostgresHands:
    """Move every instant of every row into the past, and update rows directly."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def now(self) -> datetime:
        row = self._connection.execute("select now()").fetchone()
        assert row is not None
        assert isinstance(row[0], datetime)
        return row[0]

    def pass_time(self, seconds: float) -> None:
        with self._connection.transaction():
            for table, columns in INSTANTS.items():
                moved = [sql.SQL("{0} = {0} - %(by)s").format(sql.Identifier(column)) for column in columns]
                statement = sql.SQL("update {} set {}").format(sql.Identifier(table), sql.SQL(", ").join(moved))
                self._connection.execute(statement, {"by": timedelta(seconds=seconds)})

    def edit(self, job_id: UUID, **columns: Any) -> None:
        assignments = [sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in columns]
        statement = sql.SQL("update x_jobs set {} where id = %(id)s").format(sql.SQL(", ").join(assignments))
        self._connection.execute(statement, {"id": job_id, **columns})

    def put_counter(self, row: CounterBucket, *, shard: int = 0) -> None:
        """Put one row of a shard."""
        values = {**asdict(row), "bucket": row.bucket_at, "shard": shard}
        del values["bucket_at"]
        names = sql.SQL(", ").join(map(sql.Identifier, values))
        given = sql.SQL(", ").join(map(sql.Placeholder, values))
        self._connection.execute(sql.SQL("insert into x_job_counters ({}) values ({})").format(names, given), values)

    def empty(self) -> None:
        """Delete every row: a truncation costs more than the few rows that a test leaves."""
        statements = [sql.SQL("delete from {}").format(sql.Identifier(table)) for table in TABLES]
        self._connection.execute(sql.SQL("; ").join(statements))


@pytest.fixture(scope="session")
def postgres_world(server_dsn: str) -> Iterator[World]:
    """One installed schema and one driver for the session; each test finds it empty."""
    with queue_schema(server_dsn) as (name, connection):
        driver = PostgresDriver(dsn_in(server_dsn, name))
        for stores in (driver.stores(), driver.control()):
            stores.jobs.stats()
        keep_running()
        try:
            yield World(driver, PostgresHands(connection))
        finally:
            driver.close()


@pytest.fixture(params=["memory", "postgres"])
def world(request: pytest.FixtureRequest) -> World:
    """The driver under test, holding no rows."""
    return empty_world(request.param, request)


def empty_world(kind: str, request: pytest.FixtureRequest) -> World:
    """Answer an empty world of the kind asked for."""
    if kind == "memory":
        clock = MovingClock()
        driver = MemoryDriver(clock)
        return World(driver, MemoryHands(driver, clock))
    world: World = request.getfixturevalue("postgres_world")
    assert isinstance(world.hands, PostgresHands)
    world.hands.empty()
    return world
