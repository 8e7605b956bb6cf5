"""Workers over servers that are short of room, read-only, restarted under them, or set up against them."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from rowsweep import embedded
from rowsweep.clock import SystemClock, real_monotonic
from rowsweep.embedded import EmbeddedServer
from rowsweep.errors import DriverUnavailable, InvalidInput
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.jobs.handle import JobHandle
from rowsweep.operate.health.examine import examine
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.postgres.install import install
from tests.conftest import UNSAFE_BUT_FAST
from tests.worker.shop import PostgresHands, Shop, logged, until
from tests.worker.world import opened

# Five seconds, as promised, and as much for a loaded machine.
BACK_SECONDS = 10.0
MARKS = "create table if not exists marks (id bigint generated always as identity primary key, mark text)"


@contextlib.contextmanager
def shop_over(dsn: str, admin: str | None = None) -> Iterator[Shop]:
    """A shop over a database of one's own; `admin` is how the test itself reaches it."""
    with psycopg.connect(admin or dsn, autocommit=True) as connection:
        install(admin or dsn)
        connection.execute(MARKS)
        driver = PostgresDriver(make_conninfo(dsn, application_name="under-test"))
        yield from opened(Shop("postgres", driver, PostgresHands(connection)))
        driver.close()


def sql_of(shop: Shop, text: str, *values: Any) -> list[Any]:
    assert isinstance(shop.hands, PostgresHands)
    cursor = shop.hands.connection.execute(text, values)
    return [row[0] for row in cursor] if cursor.description else []


def failures(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Answer what failed passes said."""
    return logged(caplog.records, "jobs.worker.tick-failed")


def complaints(caplog: pytest.LogCaptureFixture) -> list[Any]:
    """Answer what was logged as a warning or worse."""
    ours = [record for record in caplog.records if record.name == "rowsweep" and record.levelno >= logging.WARNING]
    return [(record.getMessage(), getattr(record, "fields", None)) for record in ours]


def marking() -> JobHandle[Any, Any]:
    """Declare a job that writes one row under its fence."""

    @job("marking", tenant="none", input=str)
    def mark(ctx: Ctx, text: str) -> None:
        with ctx.transaction() as tx:
            tx.connection.execute("insert into marks (mark) values (%s)", [text])

    return mark


SESSIONS = "select pid from pg_stat_activity where application_name = 'under-test' order by pid"
END = "select pg_terminate_backend(%s, 2000)"


@pytest.mark.slow
def test_every_connection_of_a_worker_may_be_cut_at_any_time(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    """N-024, N-036: each in turn and all at once, under work: nothing is lost, what is fenced is done once."""
    caplog.set_level(logging.INFO, "rowsweep")
    with shop_over(dsn) as shop:
        mark = marking()
        worker = shop.running(visibility="3s", renew_every="300ms", concurrency=2)
        until(lambda: len(sql_of(shop, SESSIONS)) >= 2)
        ids = []
        for turn in range(6):
            ids += [shop.enqueue(mark, f"{turn}-{number}") for number in range(5)]
            pids = sql_of(shop, SESSIONS)
            for pid in pids if turn % 2 else pids[turn % max(len(pids), 1) :][:1]:
                sql_of(shop, END, pid)
        for job_id in ids:
            shop.until_state(job_id, "done")
        wanted = sorted(f"{turn}-{number}" for turn in range(6) for number in range(5))
        assert sorted(sql_of(shop, "select mark from marks")) == wanted
        assert worker.state == "running"
    cut = logged(caplog.records, "jobs.worker.tick-failed") + logged(caplog.records, "jobs.wake.lost")
    assert cut
    assert all(fields["code"] == "X_DRIVER_UNAVAILABLE" for fields in cut), cut


@pytest.fixture
def small_server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """A server with room for fourteen connections."""
    settings = {**UNSAFE_BUT_FAST, "max_connections": "14", "superuser_reserved_connections": "0"}
    server = embedded.start(tmp_path / "small", settings=settings)
    yield server
    server.leave()


@pytest.mark.slow
def test_a_server_without_room_is_waited_for(small_server: EmbeddedServer, caplog: pytest.LogCaptureFixture) -> None:
    """N-024: `too many clients` is told with what helps, and work goes on once there is room again."""
    caplog.set_level(logging.INFO, "rowsweep")
    with shop_over(small_server.dsn) as shop:
        mark = marking()
        shop.until_state(_worked_once(shop, mark), "done")
        with contextlib.ExitStack() as others:
            until(lambda: _squeezed_out(shop, small_server, others))
            until(lambda: "too many" in str([told["cause"] for told in failures(caplog)]))
            with pytest.raises(DriverUnavailable) as refused:
                PostgresDriver(small_server.dsn).stores().jobs.stats()
            assert "max_connections" in refused.value.fix
            health = examine(PostgresDriver(small_server.dsn), SystemClock())
            assert [finding.level for finding in health.findings] == ["fail"]
        back = real_monotonic()
        shop.until_state(shop.enqueue(mark, "after"), "done")
        assert real_monotonic() - back < BACK_SECONDS
        assert sorted(sql_of(shop, "select mark from marks")) == ["after", "before"]


def _squeezed_out(shop: Shop, server: EmbeddedServer, others: contextlib.ExitStack) -> bool:
    """End the worker's sessions and take every place that falls free; say whether it got none back meanwhile."""
    sql_of(shop, f"select pg_terminate_backend(pid) from ({SESSIONS}) worker")
    for _ in range(20):
        with contextlib.suppress(psycopg.OperationalError):
            others.enter_context(psycopg.connect(server.dsn))
    return not sql_of(shop, SESSIONS)


def _worked_once(shop: Shop, mark: JobHandle[Any, Any]) -> Any:
    shop.running()
    return shop.enqueue(mark, "before")


@pytest.mark.slow
def test_a_server_that_takes_no_writes_is_waited_for(
    private_server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """N-024, N-118: a standby after a failover is told of by all; work goes on once it is promoted."""
    caplog.set_level(logging.INFO, "rowsweep")
    with shop_over(private_server.dsn) as shop:
        mark = marking()
        shop.until_state(_worked_once(shop, mark), "done")
        private_server.stop()
        (private_server.folder / "pg" / "standby.signal").touch()
        private_server.restart()
        for refused in (lambda: install(private_server.dsn, "other"), lambda: shop.enqueue(mark, "refused")):
            with pytest.raises(DriverUnavailable, match="takes no writes now") as told:
                refused()
            assert "target_session_attrs" in told.value.fix
        told_of = {finding.name: finding for finding in examine(shop.driver, SystemClock()).findings}
        assert told_of["connection"].level == "fail"
        until(lambda: "takes no writes" in str([told["cause"] for told in failures(caplog)]))
        assert {told["code"] for told in failures(caplog)} == {"X_DRIVER_UNAVAILABLE"}
        with psycopg.connect(private_server.dsn, autocommit=True) as connection:
            connection.execute("select pg_promote()")
            back = real_monotonic()
            shop.until_state(shop.enqueue(mark, "after"), "done")
            assert real_monotonic() - back < BACK_SECONDS
            rows = connection.execute("select mark from marks order by id").fetchall()
        assert rows == [("before",), ("after",)]


HOSTILE = {
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "statement_timeout": "100",
    "lock_timeout": "20",
    "idle_session_timeout": "400",
    "TimeZone": "Asia/Kathmandu",
    "DateStyle": "German",
}


def test_what_a_role_defaults_to_changes_nothing(
    dsn: str, schema: str, connection: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """N-118: serializable, read-only, with timeouts that no claim or body would survive; two workers, one queue."""
    caplog.set_level(logging.INFO, "rowsweep")
    role = f"hostile_{secrets.token_hex(6)}"
    with _role(connection, role, schema) as named:
        for name, value in HOSTILE.items():
            connection.execute(sql.SQL("alter role {} set {} = {}").format(named, sql.Identifier(name), value))
        theirs = make_conninfo(dsn, user=role)
        install(theirs)
        with shop_over(theirs, dsn) as shop:
            connection.execute(sql.SQL("grant all on marks to {}").format(named))

            @job("slow", tenant="none", input=str)
            def slow(ctx: Ctx, text: str) -> None:
                with ctx.transaction() as tx:
                    tx.connection.execute("select pg_sleep(0.15)")
                    tx.connection.execute("insert into marks (mark) values (%s)", [text])

            ids = [shop.enqueue(slow, str(number)) for number in range(12)]
            for _ in range(2):
                shop.running(concurrency=4, visibility="3s", renew_every="100ms")
            for job_id in ids:
                assert shop.until_state(job_id, "done").claims == 1
            assert len(set(sql_of(shop, "select mark from marks"))) == 12
            with driver_of(shop).question_connection() as asked, driver_of(shop).sweep_connection() as lent:
                assert [settings_of(one) for one in (asked, lent)] == [
                    ["5s", "0", "read committed", "off"],
                    ["0", "0", "read committed", "off"],
                ]
    assert complaints(caplog) == []


def driver_of(shop: Shop) -> PostgresDriver:
    assert isinstance(shop.driver, PostgresDriver)
    return shop.driver


def settings_of(connection: psycopg.Connection[Any]) -> list[str]:
    """Answer a session's limits, and what its transactions are."""
    names = ("statement_timeout", "lock_timeout", "default_transaction_isolation", "default_transaction_read_only")
    return [connection.execute(sql.SQL("show {}").format(sql.Identifier(name))).fetchone()[0] for name in names]  # type: ignore[index]


@contextlib.contextmanager
def _role(connection: psycopg.Connection[Any], name: str, schema: str) -> Iterator[sql.Identifier]:
    """A role that may make tables in a schema and use those that are there; gone afterwards."""
    named = sql.Identifier(name)
    connection.execute(sql.SQL("create role {} login").format(named))
    connection.execute(sql.SQL("grant all on schema {} to {}").format(sql.Identifier(schema), named))
    try:
        yield named
    finally:
        connection.execute("select pg_terminate_backend(pid, 2000) from pg_stat_activity where usename = %s", [name])
        connection.execute(sql.SQL("drop owned by {}; drop role {}").format(named, named))


@pytest.mark.parametrize("limit", [4, 6])
def test_a_role_that_may_hold_few_connections_works_with_those(
    dsn: str, schema: str, connection: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture, limit: int
) -> None:
    """N-040: the pools share what there is, and bodies still cannot use up what claims and settles with."""
    caplog.set_level(logging.INFO, "rowsweep")
    role = f"few_{secrets.token_hex(6)}"
    with _role(connection, role, schema) as named:
        theirs = make_conninfo(dsn, user=role)
        install(theirs)
        connection.execute(sql.SQL("alter role {} connection limit {}").format(named, sql.Literal(limit)))
        with shop_over(theirs, dsn) as shop:
            connection.execute(sql.SQL("grant all on marks to {}").format(named))
            mark = marking()
            ids = [shop.enqueue(mark, str(number)) for number in range(20)]
            shop.running(concurrency=8)
            for job_id in ids:
                assert shop.until_state(job_id, "done").claims == 1
            assert len(sql_of(shop, "select mark from marks")) == 20
    assert complaints(caplog) == []


def test_a_role_that_may_hold_too_few_connections_is_refused(
    dsn: str, schema: str, connection: psycopg.Connection[Any]
) -> None:
    """N-040: a worker, at once and with what helps; looking and steering do with what there is."""
    role = f"fewer_{secrets.token_hex(6)}"
    with _role(connection, role, schema) as named:
        theirs = make_conninfo(dsn, user=role)
        install(theirs)
        connection.execute(sql.SQL("alter role {} connection limit 3").format(named))
        driver = PostgresDriver(theirs)
        assert driver.stores().jobs.stats() == []
        with pytest.raises(DriverUnavailable, match=r"may hold 3 connections; a worker needs 4") as refused:
            driver.reserve(8)
        assert "connection limit" in refused.value.fix
        driver.close()


def test_a_payload_of_a_mebibyte_travels_and_a_larger_one_is_refused(shop: Shop) -> None:
    """N-121: measured as JSON; nothing is inserted."""
    room = 1024 * 1024 - len('""')

    @job("large", tenant="none", input=str)
    def large(ctx: Ctx, text: str) -> int:
        return len(text)

    job_id = shop.enqueue(large, "x" * room)
    with pytest.raises(InvalidInput, match=r"the limit is 1,048,576 \(1 MiB\)"):
        shop.enqueue(large, "x" * (room + 1))
    shop.running()
    assert shop.until_state(job_id, "done").result == room
    assert sum(stats.done for stats in shop.driver.stores().jobs.stats()) == 1
