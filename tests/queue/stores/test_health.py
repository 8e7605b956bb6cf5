"""What a driver says of its own health, over both drivers."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.postgres.install import install
from rowsweep.queue.stores.health import HealthStore
from tests.queue.world import World, bring_into, is_near


def health(world: World) -> HealthStore:
    store = world.driver.stores().health
    assert store is not None
    return store


def test_the_database_s_clock_is_told(world: World) -> None:
    """N-105: what this machine's is compared with."""
    assert is_near(health(world).server().now, world.hands.now())


def test_depths_are_counted_whenever_they_are_asked_for(world: World) -> None:
    """N-105, D-30: unlike a worker's sample, by anybody."""
    assert health(world).depths() == []
    world.enqueue(queue="a")
    bring_into(world, "dead")
    world.enqueue(queue="a", delay_seconds=600)
    for _ in range(2):
        found = health(world).depths()
        assert [(depth.queue, depth.ready, depth.dead) for depth in found] == [("a", 1, 0), ("default", 0, 1)]
    world.hands.pass_time(120)
    (depth, _) = health(world).depths()
    assert (depth.queue, depth.ready, depth.is_capped) == ("a", 1, False)
    assert depth.oldest_ready_seconds == pytest.approx(120, abs=5)


def test_leases_are_told_also_once_they_expired(world: World) -> None:
    """N-105: who led last, and since when nobody does."""
    leader = world.driver.stores().leader
    assert leader is not None
    assert health(world).leaders() == []
    assert leader.acquire("scheduler", "box:1:a", lease_seconds=30)
    (lease,) = health(world).leaders()
    assert (lease.name, lease.holder) == ("scheduler", "box:1:a")
    assert lease.expires_at > world.hands.now()
    world.hands.pass_time(90)
    (lease,) = health(world).leaders()
    assert lease.expires_at < world.hands.now()


def test_the_oldest_finished_jobs_are_told(world: World) -> None:
    """N-105: what retention should have taken."""
    assert health(world).kept().done_seconds is None
    bring_into(world, "done")
    world.hands.pass_time(3600)
    bring_into(world, "cancelled")
    bring_into(world, "failed")
    kept = health(world).kept()
    assert kept.done_seconds == pytest.approx(3600, abs=10)
    assert kept.dead_seconds == pytest.approx(0, abs=10)


@pytest.fixture
def driver(postgres_world: World) -> PostgresDriver:
    assert isinstance(postgres_world.driver, PostgresDriver)
    return postgres_world.driver


def postgres_health(driver: PostgresDriver) -> HealthStore:
    store = driver.stores().health
    assert store is not None
    return store


def test_a_session_that_leads_by_an_advisory_lock_is_a_leader(driver: PostgresDriver) -> None:
    """N-105, S-257."""
    lock = driver.advisory_lock("scheduler")
    assert lock.acquire()
    try:
        found = [lease for lease in postgres_health(driver).leaders() if lease.holder.startswith("session ")]
        assert len(found) == 1
    finally:
        lock.release()
    assert not [lease for lease in postgres_health(driver).leaders() if lease.holder.startswith("session ")]


def test_the_server_and_its_tables_are_told(driver: PostgresDriver, server_dsn: str) -> None:
    """N-105: version, room, the oldest open transaction, dead rows."""
    with psycopg.connect(server_dsn) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select 1 from pg_class limit 1")
        facts = postgres_health(driver).server()
        assert facts.oldest_transaction_pid is not None
    assert int(facts.version.split(".")[0]) >= 15
    assert not facts.is_standby
    assert facts.max_connections is not None
    assert 1 <= facts.connections <= facts.max_connections
    assert "x_jobs" in {table.table for table in postgres_health(driver).tables()}


def test_a_role_s_limit_is_told(dsn: str, schema: str, connection: psycopg.Connection[Any]) -> None:
    """N-105: the limit of the session's own role; a superuser is held by none."""
    install(dsn)
    role = sql.Identifier(f"limited_{schema}")
    connection.execute(sql.SQL("create role {} login connection limit 7").format(role))
    connection.execute(sql.SQL("grant usage on schema {} to {}").format(sql.Identifier(schema), role))
    connection.execute(sql.SQL("grant select on all tables in schema {} to {}").format(sql.Identifier(schema), role))
    limits = []
    for user in (f"limited_{schema}", connection.info.user):
        driver = PostgresDriver(make_conninfo(dsn, user=user))
        limits.append(postgres_health(driver).server().role_limit)
        driver.close()
    connection.execute(sql.SQL("drop owned by {}; drop role {}").format(role, role))
    assert limits == [7, None]
