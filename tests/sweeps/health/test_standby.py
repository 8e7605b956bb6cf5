"""A real standby that falls behind, and a real archive that fails: the sweep holds, and goes on once they are well."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import rowsweep as rs
from rowsweep import embedded
from rowsweep.app import connecting
from rowsweep.clock import real_monotonic
from rowsweep.embedded.programs import find_programs
from rowsweep.jobs.registry import reset_jobs
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.sweeps.health.question import ask
from tests.conftest import UNSAFE_BUT_FAST
from tests.sweeps.field import Background, Field, until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("brisk")]

SEGMENT = 16 * 1024**2


@contextmanager
def field_on(server: embedded.EmbeddedServer) -> Iterator[Field]:
    """Connect an app to a server of the test's own."""
    reset_jobs()
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        app = connecting.connect(driver=PostgresDriver(server.dsn), work=False, actor="tester", health="off")
        app.install()
        made = Field(app, server.dsn, connection, "public")
        try:
            yield made
        finally:
            for worker in made.workers:
                worker.stop(deadline_at=real_monotonic() + 5)
            app.close()
            reset_jobs()


@pytest.fixture
def standby(private_server: embedded.EmbeddedServer, tmp_path: Path) -> Iterator[psycopg.Connection[Any]]:
    """A streaming standby of the private server, and a connection to it."""
    home = tmp_path / "standby"
    home.mkdir()
    programs = find_programs(home)
    programs.give(home)
    backup = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync", f"--pgdata={home / 'pg'}"]
    programs.run("pg_basebackup", f"--dbname={private_server.dsn}", *backup)
    server = embedded.start(home)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        yield connection
    server.leave()


def slowly(field: Field, health: Any) -> rs.Sweep[Any]:
    """Declare a sweep that goes on for long enough to fall behind it."""
    field.orders(20_000)
    return rs.backfill(
        "totals", rows=rs.Rows("orders"), set={"total": "price * qty"}, batch_rows=20, adapt=False, rate="400/s",
        health=health,
    )  # fmt: skip


def pausing(standby: psycopg.Connection[Any]) -> tuple[Callable[[], object], Callable[[], object]]:
    return (
        lambda: standby.execute("select pg_wal_replay_pause()"),
        lambda: standby.execute("select pg_wal_replay_resume()"),
    )


def stopping(standby: psycopg.Connection[Any]) -> tuple[Callable[[], object], Callable[[], object]]:
    ((pid,),) = standby.execute("select pid from pg_stat_wal_receiver").fetchall()
    return lambda: os.kill(pid, signal.SIGSTOP), lambda: os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("kind", [pausing, stopping])
def test_a_sweep_holds_while_its_standby_is_behind_and_goes_on_once_it_has_caught_up(
    private_server: embedded.EmbeddedServer, standby: psycopg.Connection[Any], kind: Any
) -> None:
    """D-6: a replay that is paused, and a receiver that is stopped, of which the standby reports nothing."""
    fall_behind, catch_up = kind(standby)
    with field_on(private_server) as field:
        lag = rs.replica_lag_below("1500ms", slow="1s")
        run = slowly(field, lag).launch()
        sweeping = Background(field.tick)
        until(lambda: field.row(run).batches > 5, "some batches")
        assert field.row(run).options["governor"]["signals"] == {"replica_lag": {"is": "ok"}}
        fall_behind()
        try:
            until(lambda: "behind (limit 1.5s)" in (field.row(run).waiting_for or ""), "the hold")
            held_at = field.row(run).batches
            held = field.row(run).options["governor"]["held"].get("replica_lag", 0)
            until(lambda: field.row(run).options["governor"]["held"].get("replica_lag", 0) > held + 0.5, "time held")
            assert field.row(run).batches == held_at
            reported = field.one("select coalesce(extract(epoch from replay_lag), 0) from pg_stat_replication")
            assert kind is pausing or reported < 1
        finally:
            catch_up()
        until(lambda: field.row(run).batches > held_at, "more batches")
        run.tune(rate="none")
        assert sweeping.result().outcome == "completed"
        assert (field.row(run).rows, field.row(run).waiting_for) == (20_000, None)
        assert list(field.row(run).options["governor"]["slowed"]) == ["replica_lag"]


def test_a_standby_that_is_behind_on_purpose_can_be_ignored(
    private_server: embedded.EmbeddedServer, standby: psycopg.Connection[Any]
) -> None:
    """D-6: `recovery_min_apply_delay`; the bytes it is behind are seen all the same by who asks for them."""
    standby.execute("alter system set recovery_min_apply_delay = '10min'")
    standby.execute("select pg_reload_conf()")
    with field_on(private_server) as field:
        field.orders(20_000)
        until(lambda: ask(field.connection, []).replicas[0].behind_bytes > 100_000, "a delay")
        (replica,) = ask(field.connection, []).replicas
        health = [
            rs.replica_lag_below("10ms", ignore=[replica.name]),
            rs.replica_lag_bytes_below("1TB", slow="1kB"),
        ]
        field.sql("drop table orders")
        run = slowly(field, health).launch(rate="1000000/s", batch_rows=5_000)
        field.tick()
        row = field.row(run)
        assert (row.status, row.rows) == ("done", 20_000)
        signals = row.options["governor"]["signals"]
        assert signals["replica_lag"] == {"is": "unknown", "says": "no standby is connected"}
        assert signals["replica_lag_bytes"]["is"] == "slow"


def test_a_standby_can_be_asked_itself(standby: psycopg.Connection[Any]) -> None:
    """D-6, D-1: an export may read from one; it archives nothing and has no standby of its own."""
    reading = ask(standby, [])
    assert (reading.is_standby, reading.standbys, reading.archives) == (True, 0, False)
    assert reading.position is not None


def test_a_sweep_holds_while_the_archive_fails_and_goes_on_once_it_has_what_there_is(tmp_path: Path) -> None:
    """D-6: counted from the first segment that failed where none was ever archived, then from the last one archived."""
    settings = {**UNSAFE_BUT_FAST, "archive_mode": "on", "archive_command": "false"}
    server = embedded.start(tmp_path / "archiving", settings=settings)
    try:
        with field_on(server) as field:
            assert ask(field.connection, []).archives
            for _ in range(4):
                field.sql("create table filler (id int); drop table filler")
                field.sql("select pg_switch_wal()")
            ready = "select count(*) from pg_ls_archive_statusdir() where name like '%.ready'"
            until(lambda: (ask(field.connection, []).archive_bytes or 0) >= 4 * SEGMENT, "four segments that wait")
            assert ask(field.connection, []).archive_bytes == field.one(ready) * SEGMENT
            field.orders(1_000)
            health = rs.archive_backlog_below("64MB")
            run = rs.backfill("totals", rows=rs.Rows("orders"), set={"total": "1"}, health=health).launch()
            sweeping = Background(field.tick)
            words = "not archived yet (limit 64MB)"
            until(lambda: words in (field.row(run).waiting_for or ""), "the hold")
            assert field.row(run).batches == 0
            field.sql("alter system set archive_command = 'true'")
            field.sql("select pg_reload_conf()")
            assert sweeping.result().outcome == "completed"
            assert field.row(run).rows == 1_000
            until(lambda: ask(field.connection, []).archive_bytes == 0, "an archive that is up to date")
            assert field.row(run).options["governor"]["held"]["archive_backlog"] > 0
    finally:
        server.leave()


@pytest.mark.parametrize("shards", [1, 2])
def test_an_export_of_a_standby_does_not_claim_to_know_who_writes(
    private_server: embedded.EmbeddedServer, standby: psycopg.Connection[Any], tmp_path: Path, shards: int
) -> None:
    """N-057, N-091: it writes nothing there, whatever its shards; a writer's locks are on the primary."""
    with field_on(private_server) as field, field.other() as writer:
        field.orders(5)
        until(lambda: standby.execute("select to_regclass('orders')").fetchone() != (None,))
        until(lambda: standby.execute("select count(*) from orders").fetchone() == (5,))
        writer.execute("begin; insert into orders values (9, 1, 1)")
        to = f"{tmp_path}/out"
        export = rs.export_rows("out", rows=rs.Rows("orders"), to=to, source=standby.info.dsn, shards=shards)
        with field.working(concurrency=2):
            totals = export.launch().wait(timeout="20s")
        assert (totals["rows"], totals["writers"]) == (5, None)
