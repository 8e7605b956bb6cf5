"""Passes that are held and slowed down: real sweeps on a real server, with functions and signals that ask them to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool

import rowsweep as rs
from rowsweep.app import connecting
from rowsweep.clock import real_monotonic
from rowsweep.errors import InvalidOption, SweepNotLive
from rowsweep.lifecycle import Lifecycle
from rowsweep.queue.memory.driver import MemoryDriver
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.show.plain import snapshot_line, snapshot_text
from rowsweep.sweeps.health import question, sampler
from rowsweep.sweeps.health.signals import default_signals
from rowsweep.sweeps.run import Run
from tests.sweeps.field import Background, Field, fields_of, until

pytestmark = pytest.mark.usefixtures("brisk")

SET = {"total": "price * qty"}


class Weather:
    """A health function whose answer the test changes, and which counts how often it is asked."""

    __name__ = "weather"

    def __init__(self, answer: str | None = None) -> None:
        self.answer = answer
        self.asked = 0

    def __call__(self) -> str | None:
        self.asked += 1
        return self.answer


def backfill(health: Any, **given: Any) -> rs.Sweep[Any]:
    options: dict[str, Any] = {"batch_rows": 10, "adapt": False, **given}
    return rs.backfill("totals", rows=rs.Rows("orders"), set=SET, health=health, **options)


def governor_of(field: Field, run: Run) -> dict[str, Any]:
    found: dict[str, Any] = field.row(run).options["governor"]
    return found


def is_held(field: Field, run: Run, why: str) -> Callable[[], bool]:
    return lambda: field.row(run).waiting_for == why


def test_a_sweep_waits_while_a_function_names_a_reason_and_then_goes_on(
    field: Field, caplog: pytest.LogCaptureFixture
) -> None:
    """D-6, N-070: shown as `waiting_for` in every view, accounted by the function's name, logged once."""
    caplog.set_level(logging.DEBUG, logger="rowsweep")
    field.orders(40)
    weather = Weather("the stock-taking")
    run = backfill(weather).launch()
    sweeping = Background(field.tick)
    until(is_held(field, run, "the stock-taking"), "the hold")
    assert (field.row(run).batches, field.row(run).status) == (0, "running")
    assert "waiting for the stock-taking" in snapshot_line(run.snapshot())
    assert "waiting for the stock-taking" in run._repr_mimebundle_()["text/html"]
    until(lambda: governor_of(field, run)["held"].get("weather", 0) > 0.1, "the account")
    weather.answer = None
    assert sweeping.result().outcome == "completed"
    row = field.row(run)
    assert (row.status, row.rows, row.waiting_for) == ("done", 40, None)
    assert governor_of(field, run)["signals"] == {"weather": {"is": "ok"}}
    assert fields_of(caplog.records, "sweeps.held") == [
        {"sweep": "totals", "run_id": str(run.run_id), "signal": "weather", "reason": "the stock-taking"}
    ]
    text = snapshot_text(run.snapshot())
    assert "held back" in text
    assert "weather" in text
    assert '"governor"' not in text


def test_a_hold_keeps_neither_a_transaction_nor_a_connection(field: Field) -> None:
    """D-6: also between two batches, where a connection was held before."""
    field.orders(2_000)
    weather = Weather()

    def second(batch: rs.Batch) -> None:
        if batch.index == 1:
            weather.answer = "a look at the pool"

    run = rs.backfill("held", second, rows=rs.Rows("orders"), batch_rows=10, adapt=False, health=[weather]).launch()
    sweeping = Background(field.tick)
    until(is_held(field, run, "a look at the pool"), "the hold")
    assert 2 <= field.row(run).batches < 200
    pool = field.app.driver._pools._opened.work._pool  # type: ignore[attr-defined]
    until(lambda: pool.get_stats()["pool_available"] == pool.get_stats()["pool_size"], "all connections given back")
    locks = "select count(*) from pg_locks where relation = 'orders'::regclass and pid <> pg_backend_pid()"
    assert field.one(locks) == 0
    weather.answer = None
    assert sweeping.result().outcome == "completed"


@pytest.mark.parametrize("verb", ["pause", "cancel", "drain"])
def test_a_hold_ends_at_once_where_somebody_steers(field: Field, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-6: a hold of 30 s does not keep a pause, a cancel or a deploy waiting; its time is accounted for."""
    monkeypatch.setattr("rowsweep.sweeps.health.governor.FIRST_HOLD_SECONDS", 300.0)
    monkeypatch.setattr("rowsweep.sweeps.health.governor.LONGEST_HOLD_SECONDS", 300.0)
    field.orders(40)
    run = backfill(Weather("the weather")).launch()
    worker = field.worker(lifecycle=Lifecycle())
    sweeping = Background(lambda: field.tick(worker))
    until(is_held(field, run, "the weather"), "the hold")
    if verb == "drain":
        worker.stop()
    else:
        getattr(run, verb)("enough")
    sweeping.result()
    until(lambda: field.row(run).status == {"pause": "paused", "cancel": "cancelled"}.get(verb, "running"), verb)
    if verb != "cancel":  # the cancel took the claim away before the pass could account for anything
        assert governor_of(field, run)["held"]["weather"] > 0
    assert field.row(run).rows == 0


@pytest.mark.slow
def test_time_held_adds_up_over_attempts(field: Field) -> None:
    """D-6: a paused and resumed run keeps its account."""
    field.orders(40)
    weather = Weather("the weather")
    run = backfill(weather).launch()

    def has_waited_longer(seconds: float) -> bool:
        return bool(governor_of(field, run)["held"].get("weather", 0) > seconds)

    for _ in range(2):
        sweeping = Background(field.tick)
        until(is_held(field, run, "the weather"), "the hold")
        before = governor_of(field, run)["held"].get("weather", 0)
        until(partial(has_waited_longer, before), "more time")
        run.pause()
        sweeping.result()
        run.resume()
    held = governor_of(field, run)["held"]["weather"]
    weather.answer = None
    field.finish(run)
    assert governor_of(field, run)["held"]["weather"] == held


@pytest.mark.slow
def test_time_held_is_no_time_at_work(field: Field) -> None:
    """D-6, N-076: it spends no purge's budget and makes no estimate longer."""
    field.orders(40)
    weather = Weather("the weather")
    run = backfill(weather).launch()
    began = real_monotonic()
    sweeping = Background(field.tick)
    until(is_held(field, run, "the weather"), "the hold")
    until(lambda: governor_of(field, run)["held"].get("weather", 0) > 1.5, "more than a second")
    weather.answer = None
    sweeping.result()
    held = governor_of(field, run)["held"]["weather"]
    assert held > 1.5
    assert field.row(run).active_seconds + held <= real_monotonic() - began


def test_tuning_is_felt_during_a_hold_and_kept_with_who_asked(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-122: `run.tune(health="off")` from any process; what it was about is no signal any more."""
    monkeypatch.setattr("rowsweep.sweeps.health.governor.FIRST_HOLD_SECONDS", 300.0)
    field.orders(40)
    weather = Weather("the weather")
    run = backfill(weather).launch()
    sweeping = Background(field.tick)
    until(is_held(field, run, "the weather"), "the hold")
    snapshot = run.tune(health="off")
    assert snapshot.options["health"] == "off"
    assert snapshot.options["tuned"]["by"] == "tester"
    assert sweeping.result().outcome == "completed"
    assert field.row(run).rows == 40
    with pytest.raises(SweepNotLive):
        run.tune(health="on")
    with pytest.raises(InvalidOption, match="replica_lag"):
        run.tune(health={"replica-lag": "10s"})


def test_limits_are_tuned_on_a_live_run_and_felt_in_the_next_batch(field: Field) -> None:
    """N-122, D-6: a limit that the server is beyond holds; a looser one lets go."""
    field.orders(60)
    tuned = threading.Event()

    def tuning(batch: rs.Batch) -> None:
        if batch.index == 1:
            run.tune(health={"active_sessions": {"hold": 1}})
            tuned.set()

    with field.other() as busy:
        running = Background(lambda: busy.execute("select pg_sleep(60)"))
        run = rs.backfill("tuned", tuning, rows=rs.Rows("orders"), batch_rows=10, adapt=False).launch()
        sweeping = Background(field.tick)
        until(lambda: "active session" in (field.row(run).waiting_for or ""), "the hold")
        assert tuned.is_set()
        assert field.row(run).batches == 2
        assert "(limit 1)" in str(field.row(run).waiting_for)
        run.tune(health={"active_sessions": 1_000})
        assert sweeping.result().outcome == "completed"
        busy.cancel()
        with pytest.raises(psycopg.errors.QueryCanceled):
            running.result()
    assert governor_of(field, run)["held"]["active_sessions"] > 0


def test_sessions_that_wait_for_us_hold_the_sweep_until_they_are_through(field: Field) -> None:
    """D-6: seen while the batch holds its locks; between batches there is nobody to wait for, so it goes on."""
    field.orders(40)
    limit = rs.lock_waits_below("50ms")

    def locking(batch: rs.Batch) -> None:
        if batch.index == 1:
            batch.execute("update orders set band = 'x' where id = 11")
            theirs.append(Background(lambda: other.execute("update orders set band = 'y' where id = 11")))
            until(lambda: field.one("select count(*) from pg_locks where not granted") > 0, "a wait")
            until(lambda: rs.lock_waits_below("50ms").judge(taken(), own()).level == "hold", "a reading of it")

    def taken() -> Any:
        (only,) = sampler._samplers.values()
        return only.latest()

    def own() -> Any:
        from rowsweep.sweeps.health.kinds import Own

        return Own()

    theirs: list[Background] = []
    with field.other() as other:
        sweep = rs.backfill("locks", locking, rows=rs.Rows("orders"), batch_rows=10, adapt=False, health=limit)
        run = sweep.launch()
        field.tick()
        theirs[0].result()
    assert field.row(run).status == "done"
    assert governor_of(field, run)["held"]["lock_waits"] > 0


def test_a_strain_makes_batches_smaller_and_is_shown(field: Field) -> None:
    """N-068, D-6: a soft signal does not hold; the size is halved and does not grow."""
    field.orders(4_000)
    sizes: list[int] = []

    def noting(batch: rs.Batch) -> None:
        sizes.append(len(batch.rows))

    with field.other() as reader:
        reader.execute("begin isolation level repeatable read")
        reader.execute("select 1")
        health = rs.oldest_snapshot_below("1h", slow="1ms")
        run = rs.backfill("strained", noting, rows=rs.Rows("orders"), batch_rows=400, health=health).launch()
        field.tick()
    assert field.row(run).status == "done"
    assert max(sizes) == 200
    governor = governor_of(field, run)
    assert (governor["held"], list(governor["slowed"])) == ({}, ["oldest_snapshot"])
    assert governor["signals"]["oldest_snapshot"]["is"] == "slow"
    assert "slowed down" in snapshot_text(run.snapshot())


def test_an_export_and_a_purge_heed_it_too(field: Field, tmp_path: Path) -> None:
    """D-6: each kind of sweep is held before its next part or batch, and goes on."""
    field.orders(40)
    field.sql("alter table orders add at timestamptz not null default now() - interval '1 year'")
    field.sql("create index on orders (at)")
    weather = Weather("the weather")
    export = rs.export_rows("out", rs.Rows("orders"), tmp_path / "out", part_rows=10, health=weather)
    purge = rs.purge("old", targets=lambda: [rs.older_than("orders", "at", days=30)], confirm=1.0, health=[weather])
    for sweep in (export, purge):
        weather.answer = "the weather"
        run = sweep.launch()
        sweeping = Background(field.tick)
        until(is_held(field, run, "the weather"), "the hold")
        assert field.row(run).rows == 0
        weather.answer = None
        assert sweeping.result().outcome == "completed"
        assert field.row(run).rows == 40
        assert governor_of(field, run)["held"]["weather"] > 0


def test_the_shards_of_a_run_are_held_together_and_account_for_it_together(field: Field) -> None:
    """D-6, §7.10: each shard waits by itself, in one ledger row."""
    field.orders(2_000)
    weather = Weather("the weather")
    run = backfill(weather, shards=2).launch()
    with field.working(concurrency=4):
        until(is_held(field, run, "the weather"), "the hold")
        until(lambda: governor_of(field, run)["held"].get("weather", 0) > 0.3, "time held")
        assert field.row(run).rows == 0
        weather.answer = None
        until(lambda: field.row(run).status == "done", "the end")
    assert field.row(run).rows == 2_000
    assert field.row(run).waiting_for is None


def test_one_question_is_asked_for_all_sweeps_of_a_process_and_none_while_there_are_none(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-6: shared by the passes of a worker; only while a pass is at work."""
    asked: list[list[int]] = []

    def counted(connection: Any, ours: Any, **named: Any) -> Any:
        asked.append(list(ours))
        return question.ask(connection, ours, **named)

    monkeypatch.setattr(sampler, "ask", counted)
    field.orders(40)
    field.sql("create table goods (id bigint primary key)")
    field.sql("insert into goods select generate_series(1, 40)")
    inside, go_on = threading.Barrier(3), threading.Event()

    def meeting(batch: rs.Batch) -> None:
        inside.wait(20)
        assert go_on.wait(60)

    runs = [
        rs.backfill(table, meeting, rows=rs.Rows(table), batch_rows=40, health="on").launch()
        for table in ("orders", "goods")
    ]
    with field.working(concurrency=2):
        inside.wait(20)
        assert len(sampler._samplers) == 1
        until(lambda: len(set(asked[-1])) == 2, "both backends")
        assert [thread.name for thread in threading.enumerate()].count("rowsweep-health") == 1
        go_on.set()
        until(lambda: all(field.row(run).status == "done" for run in runs), "the end")
        until(lambda: not sampler._samplers, "no sampler left")
    until(lambda: "rowsweep-health" not in [thread.name for thread in threading.enumerate()], "no thread left")
    before = len(asked)
    assert field.sweep(backfill(Weather()))["rows"] == 40
    assert len(asked) == before


def test_a_question_that_fails_is_unknown_and_stops_nothing(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-6: shown, not fatal."""

    def failing(*_: Any, **__: Any) -> Any:
        raise psycopg.OperationalError("no such luck")

    monkeypatch.setattr(sampler, "ask", failing)
    field.orders(40)
    run = backfill("on").launch()
    field.tick()
    assert field.row(run).status == "done"
    signals = governor_of(field, run)["signals"]
    assert signals["replica_lag"] == {"is": "unknown", "says": "the question failed: no such luck"}
    assert "heeded none of 9 signals: the question failed: no such luck" in snapshot_text(run.snapshot())


def test_a_reading_that_has_become_old_is_unknown(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-6: a question that hangs says nothing of the database as it is."""
    place = field.app.driver
    with sampler.sampling(place, list) as sampling:  # type: ignore[arg-type]
        assert sampling.latest().failed is None
        monkeypatch.setattr(sampler, "STALE_SECONDS", -1.0)
        assert "has not answered for" in str(sampling.latest().failed)


def test_another_source_is_asked_about_itself(field: Field, server_dsn: str) -> None:
    """D-6, D-1: the database that is swept is the one that may be unwell; a pool lends a connection for a moment."""
    field.orders(40)
    field.sql("create table seen (id bigint)")

    def noting(batch: rs.Batch) -> None:
        assert batch.rows

    with ConnectionPool(field.dsn, min_size=1, max_size=2, open=True) as pool:
        for source in (field.dsn, pool):
            sweep = rs.backfill(
                "elsewhere", noting, rows=rs.Rows("orders"), source=source, batch_rows=20, health="on", adapt=False
            )
            run = sweep.launch(force=True)
            field.tick()
            assert field.row(run).status == "done"
            signals = governor_of(field, run)["signals"]
            assert signals["lock_waits"]["is"] == "ok"
            assert signals["active_share"]["is"] == "ok"


def test_behind_a_pooler_nobody_knows_who_waits_for_us(field: Field) -> None:
    """D-6: a transaction pooler gives each batch another backend; the other signals are known there."""
    app = connecting.connect(
        driver=PostgresDriver(field.dsn, schema=field.queue, pooler=True), work=False, actor="tester"
    )
    assert app.sweep_health == tuple(default_signals())
    field.app = app
    field.orders(40)
    run = rs.backfill("pooled", rows=rs.Rows("orders"), set=SET, batch_rows=10, adapt=False).launch()
    field.tick()
    assert field.row(run).status == "done"
    signals = governor_of(field, run)["signals"]
    assert signals["lock_waits"] == {"is": "unknown", "says": "behind a pooler nobody knows which backends are ours"}
    assert signals["active_share"] == {"is": "ok"}


def test_a_connection_heeds_the_default_signals_unless_it_says_otherwise(field: Field) -> None:
    """D-6: off over the embedded server and in memory; a declaration goes before the connection's."""
    driver = PostgresDriver(field.dsn, schema=field.queue)
    assert connecting.connect(driver=driver, work=False).sweep_health == tuple(default_signals())
    for nothing in (None, (), "off"):
        assert connecting.connect(driver=driver, work=False, health=nothing).sweep_health == ()
    lag = rs.replica_lag_below("10s")
    app = connecting.connect(driver=driver, work=False, health=lag)
    assert app.sweep_health == (lag,)
    plain = rs.backfill("plain", rows=rs.Rows("orders"), set=SET)
    assert plain.heeded_on(app) == (lag,)
    assert backfill(None).heeded_on(app) == ()
    assert connecting.connect(driver=MemoryDriver(), work=False).sweep_health == ()
    with pytest.raises(InvalidOption):
        connecting.connect(driver=driver, health="sometimes")  # type: ignore[arg-type]
    connecting.current().close()


def test_connecting_again_to_the_same_place_may_change_what_is_heeded(field: Field) -> None:
    """D-6: a cell that is run again with another `health=` is not ignored; without one nothing changes."""
    app = connecting.connect(field.dsn, schema=field.queue, work=False, health="off")
    lag = rs.replica_lag_below("10s")
    assert connecting.connect(field.dsn, schema=field.queue, health=[lag]) is app
    assert app.sweep_health == (lag,)
    assert connecting.connect(field.dsn, schema=field.queue) is app
    assert app.sweep_health == (lag,)
    app.close()


def test_a_signal_called_outside_a_sweep_asks_the_connected_database(field: Field) -> None:
    """D-6: as a function it can be tried at a prompt."""
    assert rs.active_sessions_below(10_000)() is None
    with field.other() as reader:
        reader.execute("begin isolation level repeatable read")
        reader.execute("select 1")
        assert "the oldest snapshot" in str(rs.oldest_snapshot_below("1ms")())
