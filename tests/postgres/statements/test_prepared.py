"""Statements that are prepared at first use and answered by one call."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from typing import LiteralString

import psycopg
import pytest
from psycopg import errors as pg

from rowsweep.queue.postgres.connections import SweepConnection
from rowsweep.queue.postgres.statements.arrays import Longs, Texts
from rowsweep.queue.postgres.statements.cursor import run
from rowsweep.queue.postgres.statements.prepared import run_prepared

_TERMINATE = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'prepared-test'"


@pytest.fixture
def connection(dsn: str) -> Iterator[SweepConnection]:
    """A connection in autocommit mode."""
    with SweepConnection.connect(dsn, autocommit=True, application_name="prepared-test") as made:
        yield made


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("select %(b)s::text, %(a)s::bigint, %(b)s::text, 'half %%'", {"a": 7, "b": "seven", "unused": object()}),
        ("select u.n, u.t from unnest(%(n)s::bigint[], %(t)s::text[]) u (n, t)", {"n": Longs([1, 2]), "t": Texts()}),
        ("select %(j)s::jsonb, now(), gen_random_uuid() is null, null::int, 1.5::float8", {"j": '{"a": [1, null]}'}),
        (
            "select %(names)s::text[], %(none)s::text, %(rooms)s::bigint[]",
            {"names": ["é"], "none": None, "rooms": [None]},
        ),
        ("select 1 where false and %(a)s::bool", {"a": True}),
        ("set time zone 'UTC'", {}),
    ],
)
def test_its_rows_are_those_that_psycopg_answers(
    connection: SweepConnection, text: LiteralString, values: Mapping[str, object]
) -> None:
    """N-040: the claim loop's statements and a single enqueue take this way, all others psycopg's own."""
    with connection.transaction():
        assert run_prepared(connection, text, values) == run(connection, text, values)
        assert run_prepared(connection, text, values, interruptible=True) == run(connection, text, values)


def test_a_statement_is_prepared_once_for_the_types_of_its_values(connection: SweepConnection) -> None:
    """N-031: a plan is made once, and never for values of another type."""
    text: LiteralString = "select %(a)s"
    for value in (1, 2, "text", "more", 1):
        assert run_prepared(connection, text, {"a": value}) == [(value,)]
    prepared = connection.execute("select count(*) from pg_prepared_statements where not from_sql").fetchone()
    assert prepared == (2,)


def test_an_error_is_the_one_that_psycopg_raises(connection: SweepConnection) -> None:
    """S-104: what a statement fails with decides what becomes of its group, whichever way it was sent."""
    with pytest.raises(pg.DivisionByZero) as divided:
        run_prepared(connection, "select 1 / %(a)s::int", {"a": 0})
    assert divided.value.sqlstate == "22012"
    with pytest.raises(pg.UndefinedTable):
        run_prepared(connection, "select 1 from nothing_here", {})
    assert run_prepared(connection, "select 1", {}) == [(1,)]


def test_an_interrupt_cancels_what_an_application_waits_for(connection: SweepConnection, dsn: str) -> None:
    """N-004, S-054: Ctrl-C in a notebook ends an enqueue that waits for a lock, and the connection serves the next."""
    waits = "select count(*) from pg_locks where locktype = 'advisory' and objid = 78 and not granted"
    with psycopg.connect(dsn, autocommit=True) as holder:
        holder.execute("select pg_advisory_lock(78)")

        def interrupt() -> None:
            while holder.execute(waits).fetchone() == (0,):
                pass
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            run_prepared(connection, "select pg_advisory_lock(78)", {}, interruptible=True)
        interrupter.join(30)
        assert holder.execute(waits).fetchone() == (0,)
    assert run_prepared(connection, "select 1", {}, interruptible=True) == [(1,)]


def test_other_threads_go_on_while_it_waits(connection: SweepConnection, dsn: str) -> None:
    """N-040: runs work while a claim is under way; here one lets it go on."""
    with psycopg.connect(dsn, autocommit=True) as holder:
        holder.execute("select pg_advisory_lock(77)")
        waiting = threading.Thread(target=run_prepared, args=(connection, "select pg_advisory_lock(77)", {}))
        waiting.start()
        asked = "select count(*) from pg_locks where locktype = 'advisory' and objid = 77 and not granted"
        while holder.execute(asked).fetchone() == (0,):
            pass
        holder.execute("select pg_advisory_unlock(77)")
        waiting.join(30)
        assert not waiting.is_alive()


def test_a_lost_connection_is_told_from_a_refusal(connection: SweepConnection, dsn: str) -> None:
    """N-036: what was sent over it is sent again over another."""
    run_prepared(connection, "select 1", {})
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute(_TERMINATE)
    with pytest.raises(psycopg.OperationalError) as lost:
        run_prepared(connection, "select 1", {})
    assert lost.value.sqlstate in {None, "57P01"}
    assert connection.closed


def test_a_rollback_makes_the_server_forget_no_statement_for_good(connection: SweepConnection) -> None:
    """N-040: behind a rollback psycopg deallocates all that is prepared; the claim after it is prepared anew."""
    run_prepared(connection, "select 1", {})
    with connection.transaction(force_rollback=True):
        run(connection, "select 2", {}, prepare=True)
    for text in ("select 3", "select 1", "select 3"):
        run(connection, "select 4", {}, prepare=True)  # what psycopg has to deallocate goes ahead of its next statement
        assert run_prepared(connection, text, {}) == run(connection, text, {})
    prepared = connection.execute("select count(*) from pg_prepared_statements where name like 'rowsweep%'").fetchone()
    assert prepared == (2,)
