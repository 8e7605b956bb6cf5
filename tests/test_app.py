"""Connecting: where to, to the same place again, to another, and closing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import rowsweep as rs
from rowsweep.app import connecting as composition
from rowsweep.app.app import App
from rowsweep.app.connecting import another_schema
from rowsweep.app.verbs import schema_sql
from rowsweep.errors import DriverUnavailable, InvalidOption, NotImplementedByDriver, SweepNotFound
from rowsweep.jobs import ambient
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.registry import reset_jobs
from rowsweep.queue.memory.driver import MemoryDriver
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.sweeps.run import ledger_of
from tests.queue.world import new_backfill


@pytest.fixture(autouse=True)
def _nothing_connected() -> Iterator[None]:
    reset_jobs()
    yield
    if composition._current is not None:
        composition._current.close()
    reset_jobs()


def test_nothing_works_before_it_is_connected() -> None:
    """N-109: with the lines that connect."""
    for call in (rs.current, rs.runs, rs.ledger, rs.install, rs.work, lambda: rs.attach("x")):
        with pytest.raises(DriverUnavailable, match=r"rs\.connect"):
            call()


def test_connecting_installs_nothing_and_installing_twice_changes_nothing(dsn: str) -> None:
    """N-109, DESIGN §4: one install point, idempotent."""
    app = rs.connect(dsn, work=False)
    assert rs.current() is app
    before = app.schema_status()
    first, second = rs.install(), app.install()
    assert before != first
    assert first == second == app.schema_status()
    assert rs.runs() == []
    assert rs.ledger().height == 0


def test_connecting_again_to_the_same_place_answers_the_same_app(dsn: str) -> None:
    """N-109: a cell run twice."""
    app = rs.connect(dsn, work=False)
    assert rs.connect(dsn) is app


def test_connecting_elsewhere_closes_the_former_app(dsn: str) -> None:
    """N-109: its workers are drained first, enqueues go to the new one."""
    app = rs.connect(dsn)
    app.install()

    @rs.job("look", tenant="none")
    def look(ctx: Ctx) -> None:
        """Look."""

    app.work()
    (worker,) = app.agents.workers.values()
    other = rs.connect(driver=MemoryDriver(), work=False)
    assert worker.state == "stopped"
    assert rs.current() is other
    queued, inspection = look.enqueue(), other.stores().inspection
    assert inspection is not None
    assert inspection.get(queued.id) is not None
    app.close()
    assert rs.current() is other


def test_the_environment_names_the_place_where_no_dsn_does(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-109: `$DATABASE_URL`, read when connecting."""
    monkeypatch.setenv("DATABASE_URL", dsn)
    app = rs.connect(work=False)
    assert app.stores() is not None
    assert app.driver.name == "postgres"
    assert rs.connect(dsn) is app


def test_a_place_is_named_without_its_password(dsn: str) -> None:
    """N-109: nor is it in a repr, an announcement or an error."""
    secret = make_conninfo(dsn, password="hunter2")
    app = rs.connect(secret, work=False)
    shown = f"{app.place} {app.announcement} {app!r} {app.driver!r}"
    assert "hunter2" not in shown
    assert app.announcement.startswith("Connected to ")
    app.close()
    given = conninfo_to_dict(dsn)
    nowhere = make_conninfo("", host="127.0.0.1", port="1", user=str(given["user"]), password="hunter2", dbname="x")
    with pytest.raises(DriverUnavailable) as caught:
        rs.connect(nowhere)
    assert "hunter2" not in f"{caught.value} {caught.value.meta}"
    with pytest.raises(DriverUnavailable):
        rs.current()


def test_a_dsn_and_a_driver_exclude_each_other(dsn: str) -> None:
    """N-114: X_OPTION_INVALID."""
    with pytest.raises(InvalidOption, match="exclude each other"):
        rs.connect(dsn, driver=MemoryDriver())


def test_a_driver_without_a_schema_says_so() -> None:
    """N-114: X_NOT_IMPLEMENTED, with a driver that has it."""
    app = rs.connect(driver=MemoryDriver(), work=False)
    for call in (app.install, app.schema_status):
        with pytest.raises(NotImplementedByDriver, match=r"rs\.connect"):
            call()


def test_a_transaction_takes_enqueues_with_it(dsn: str) -> None:
    """N-015: ambient; nested it is a savepoint; rolled back nothing is queued."""
    app = rs.connect(dsn, work=False)
    app.install()

    @rs.job("look", tenant="none", input=int)
    def look(ctx: Ctx, value: int) -> None:
        """Look."""

    with rs.transaction() as tx:
        tx.execute("create table mine (a int)")
        look.enqueue(1)
        with suppress(ZeroDivisionError), rs.transaction():
            look.enqueue(2)
            raise ZeroDivisionError
        with rs.transaction() as inner:
            assert inner is tx
            look.enqueue(3)
    with suppress(ZeroDivisionError), rs.transaction():
        look.enqueue(4)
        raise ZeroDivisionError
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select input from x_jobs order by id").fetchall() == [(1,), (3,)]
        assert connection.execute("select count(*) from mine").fetchone() == (0,)
    assert ambient.open_transaction() is None


def test_a_worker_of_the_app_works_its_queue(dsn: str) -> None:
    """N-072: `work()` starts one worker a queue that is declared here, once."""
    app = rs.connect(dsn, app_version="7.1")
    app.install()
    seen: list[Any] = []

    @rs.job("a", tenant="none", input=int)
    def a(ctx: Ctx, value: int) -> None:
        seen.append(value)

    @rs.job("b", tenant="none", queue="slow")
    def b(ctx: Ctx) -> None:
        """Nothing."""

    rs.work()
    rs.work()
    assert sorted(app.agents.workers) == ["default", "slow"]
    assert {worker.state for worker in app.agents.workers.values()} == {"running"}
    a.enqueue(5)
    ticking = app.worker(queues=["slow"], poll="1s")
    assert ticking.tick() == []
    ticking.stop()
    with psycopg.connect(dsn, autocommit=True) as connection:
        from tests.sweeps.field import until

        until(lambda: connection.execute("select state from x_jobs").fetchone() == ("done",), "it is worked")
    assert seen == [5]
    app.close()
    assert app.agents.workers == {}
    app.close()


def test_an_unknown_run_is_not_found(dsn: str) -> None:
    """N-114: X_SWEEP_NOT_FOUND."""
    app = rs.connect(dsn, work=False)
    app.install()
    for text in ("nothing", "0123", "%", ""):
        with pytest.raises(SweepNotFound, match="rowsweep sweeps ls"):
            app.run_of(text)


def test_a_name_that_is_mistyped_is_answered_by_the_nearest(dsn: str) -> None:
    """N-114."""
    app = rs.connect(dsn, work=False)
    app.install()
    ledger_of(app.driver).start(new_backfill(uuid4(), "order-totals"))
    with pytest.raises(SweepNotFound, match="Did you mean 'order-totals'"):
        app.run_of("order-totls")


def test_the_tables_may_be_in_a_schema_of_their_own(dsn: str, schema: str) -> None:
    """DESIGN §4: `schema=` says where."""
    app = rs.connect(dsn, schema=f"{schema} own", work=False)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            psycopg.sql.SQL("create schema if not exists {}").format(psycopg.sql.Identifier(f"{schema} own"))
        )
        try:
            app.install()
            tables = "select schemaname from pg_tables where tablename = 'x_jobs' and schemaname ~ %s"
            found = connection.execute(tables, [schema]).fetchall()
            assert found == [(f"{schema} own",)]
            assert rs.runs() == []
        finally:
            app.close()
            connection.execute("set client_min_messages = warning")
            connection.execute(
                psycopg.sql.SQL("drop schema {} cascade").format(psycopg.sql.Identifier(f"{schema} own"))
            )


def test_the_schema_can_be_printed_without_a_database() -> None:
    """S-017: `rowsweep schema print`."""
    assert "create table" in schema_sql()
    assert '"my schema".x_jobs' in schema_sql("my schema")


def test_the_embedded_server_is_started_where_nothing_else_is_named(tmp_path: Any) -> None:
    """N-109, N-110: announced in one line, its schema installed by itself, left when the app is closed.

    N-026: a second schema is only made where an install asked for it.
    """
    app = rs.connect(folder=tmp_path / "pg", work=False)
    try:
        assert isinstance(app, App)
        assert app.embedded is not None
        assert isinstance(app.driver, PostgresDriver)
        assert "\n" not in app.announcement
        assert rs.runs() == []
        assert rs.connect(folder=tmp_path / "pg") is app
        with pytest.raises(InvalidOption, match="public has them"):
            rs.connect(folder=tmp_path / "pg", schema="typo")
        with another_schema():
            app = rs.connect(folder=tmp_path / "pg", schema="second", work=False)
        assert rs.runs() == []
    finally:
        app.close()
