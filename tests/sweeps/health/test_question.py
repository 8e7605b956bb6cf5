"""The question on a real server: each signal is brought about by another session, and seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql

from rowsweep.sweeps.health.kinds import KINDS, Own
from rowsweep.sweeps.health.limits import Limits
from rowsweep.sweeps.health.question import ask
from rowsweep.sweeps.health.reading import Positions, Reading, Replica
from tests.sweeps.field import Background, until


@contextmanager
def session(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def pid_of(connection: psycopg.Connection[Any]) -> int:
    return connection.info.backend_pid


def measured(name: str, reading: Reading, own: Own | None = None) -> tuple[float | None, str]:
    found = KINDS[name].measure(reading, own or Own(), Limits())
    return found.value, found.words


def test_a_quiet_server_without_standby_and_archive_says_so(connection: psycopg.Connection[Any]) -> None:
    """D-6: what there is not is unknown, and no figure is invented."""
    reading = ask(connection, [])
    assert (reading.failed, reading.is_standby, reading.standbys, reading.archives) == (None, False, 0, False)
    assert reading.sees_all
    assert reading.position is not None
    assert measured("replica_lag", reading) == (None, "no standby is connected")
    assert measured("replica_lag_bytes", reading) == (None, "no standby is connected")
    assert measured("archive_backlog", reading) == (None, "the server archives no WAL")
    assert measured("lock_waits", reading)[0] == 0
    assert measured("vacuum", reading)[0] == 0
    assert measured("active_share", reading)[0] < 1  # type: ignore[operator]
    assert measured("batch_times", reading) == (None, "too few batches yet")


def test_only_a_session_that_waits_for_one_of_ours_counts(dsn: str, connection: psycopg.Connection[Any]) -> None:
    """D-6: `lock_waits` and `waiting_sessions` are about this sweep's locks, not about those of others."""
    connection.execute("create table held (id int primary key)")
    connection.execute("insert into held values (1), (2)")
    with session(dsn) as ours, session(dsn) as theirs, session(dsn) as waits, session(dsn) as elsewhere:
        ours.execute("begin; update held set id = 1 where id = 1")
        theirs.execute("begin; update held set id = 2 where id = 2")
        waiting = [
            Background(lambda: waits.execute("update held set id = 1 where id = 1")),
            Background(lambda: elsewhere.execute("update held set id = 2 where id = 2")),
        ]
        until(lambda: ask(connection, [pid_of(ours), pid_of(theirs)]).waiting == 2, "two waits")
        reading = ask(connection, [pid_of(ours)])
        assert reading.waiting == 1
        assert reading.waiting_seconds > 0
        value, words = measured("waiting_sessions", reading)
        assert (value, words.split(",")[0]) == (1, "1 session that waits for this sweep's locks")
        assert ask(connection, []).waiting == 0
        assert ask(connection, [pid_of(ours), pid_of(waits)]).waiting == 0
        assert measured("lock_waits", ask(connection, [], knows_ours=False))[0] is None
        ours.execute("commit")
        theirs.execute("commit")
        for one in waiting:
            one.result()


def test_active_sessions_are_others_that_run_a_statement(dsn: str, connection: psycopg.Connection[Any]) -> None:
    """D-6: neither the asking session nor ours, nor idle ones."""
    with session(dsn) as busy:
        before = ask(connection, []).active
        running = Background(lambda: busy.execute("select pg_sleep(60)"))
        until(lambda: ask(connection, []).active > before, "an active session")
        with_it, without = ask(connection, []).active, ask(connection, [pid_of(busy)]).active
        assert with_it > without
        busy.cancel()
        with pytest.raises(psycopg.errors.QueryCanceled):
            running.result()


def test_the_oldest_snapshot_is_another_sessions_in_this_database(
    dsn: str, connection: psycopg.Connection[Any]
) -> None:
    """D-6: the oldest transaction that holds a snapshot; one without, and our own, hold nothing back."""
    with session(dsn) as reader:
        reader.execute("begin isolation level repeatable read")
        assert ask(connection, []).snapshot_pid != pid_of(reader)
        reader.execute("select 1")
        reading = ask(connection, [])
        assert reading.snapshot_seconds > 0
        assert reading.snapshot_pid is not None
        others = {reading.snapshot_pid} - {pid_of(reader)}
        assert ask(connection, [*others]).snapshot_pid == pid_of(reader)
        assert ask(connection, [*others, pid_of(reader)]).snapshot_pid != pid_of(reader)


def test_a_vacuum_counts_for_its_table_and_the_partitioned_ones_above_it(
    dsn: str, connection: psycopg.Connection[Any], schema: str
) -> None:
    """D-6: a sweep of a partitioned table is slowed by the vacuum of one of its partitions."""
    connection.execute("create table parted (id int primary key) partition by range (id)")
    connection.execute('create table "part, one" partition of parted for values from (0) to (100000)')
    connection.execute("create table other (id int)")
    connection.execute("insert into parted select generate_series(0, 60000)")
    with session(dsn) as vacuuming:
        vacuuming.execute("set vacuum_cost_delay = 100; set vacuum_cost_limit = 1")
        running = Background(lambda: vacuuming.execute('vacuum "part, one"'))
        until(lambda: ask(connection, []).vacuums, "a vacuum")
        reading = ask(connection, [])
        assert reading.snapshot_pid != pid_of(vacuuming)
        part, above = (frozenset({(schema, name)}) for name in ("part, one", "parted"))
        value, words = measured("vacuum", reading, Own(tables=part))
        assert (value, words.split(" (")[0]) == (1, f"the vacuum of {schema}.part, one")
        assert measured("vacuum", reading, Own(tables=above))[0] == 1
        assert measured("vacuum", reading, Own(tables=frozenset({(schema, "other")})))[0] == 0
        vacuuming.cancel()
        with pytest.raises(psycopg.errors.QueryCanceled):
            running.result()


def test_a_role_without_pg_monitor_knows_less_and_is_told_so(dsn: str, connection: psycopg.Connection[Any]) -> None:
    """D-6: unknown, not fatal; who waits for our locks is known to everybody."""
    role = f"plain_{pid_of(connection)}"
    connection.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
    try:
        with session(dsn) as plain:
            plain.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
            reading = ask(plain, [])
            assert (reading.failed, reading.sees_all) == (None, False)
            for name in ("active_share", "active_sessions", "oldest_snapshot"):
                assert measured(name, reading) == (None, "the role may not see it: grant pg_monitor to it")
            assert measured("lock_waits", reading)[0] == 0
    finally:
        connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


def test_a_lag_in_seconds_is_how_long_ago_the_primary_was_there() -> None:
    """D-6: a standby that stands still may go on reporting the lag it had, so that figure is not enough."""
    positions = Positions()

    def seen(at: float, position: int, replayed: int, reported: float = 0.0) -> float:
        replica = Replica(name="r", behind_bytes=position - replayed, replayed=replayed, seconds=reported)
        reading = positions.note(Reading(at=at, position=position, standbys=1, replicas=(replica,)))
        return reading.replicas[0].seconds

    assert seen(10, 1_000, 1_000) == 0
    assert seen(11, 2_000, 1_000) == 0
    assert seen(12, 3_000, 1_000, reported=0.2) == 1
    assert seen(20, 4_000, 1_000, reported=0.2) == 9
    assert seen(21, 4_000, 2_000) == 9
    assert seen(22, 4_000, 4_000, reported=3.0) == 0
    assert seen(23, 5_000, 4_500, reported=3.0) == 3
    assert seen(24, 100, 50) == 0
    assert positions.note(Reading(at=25, failed="gone")).replicas == ()
