"""Pause, resume and cancel from any process; a drain stops behind the batch in flight."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import polars as pl
import pytest

import rowsweep as rs
from rowsweep.clock import real_monotonic
from rowsweep.errors import InvalidOption, NotCancellable, SweepCancelled, SweepFailed, SweepNotLive
from rowsweep.lifecycle import Lifecycle
from rowsweep.sweeps.passes import table as passes
from tests.sweeps.field import NOW, Background, Field, fields_of, until, wait_for


class Gate:
    """A handler that waits at one batch until it is let go, and counts what it sweeps."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self, batch: rs.Batch) -> pl.DataFrame:
        answer = batch.frame.select("id", hits=pl.col("hits") + 1)
        if batch.index == self.at and not self.open.is_set():
            self.reached.set()
            wait_for(self.open)
        return answer


def counting(batch: rs.Batch) -> pl.DataFrame:
    return batch.frame.select("id", hits=pl.col("hits") + 1)


def declared(field: Field, handler: Any = counting, rows: int = 20, **options: Any) -> Any:
    """Make `orders` with a counter, and declare a sweep over it."""
    field.orders(rows, more=", hits int not null default 0")
    return rs.backfill("count", handler, rows=rs.Rows("orders"), batch_rows=4, adapt=False, **options)


def hits(field: Field) -> list[tuple[int, int]]:
    """Answer how many rows were swept how often."""
    return [(times, rows) for times, rows in field.sql("select hits, count(*) from orders group by 1 order by 1")]


def test_a_pause_finishes_the_batch_in_flight_and_parks_the_run(field: Field, caplog: pytest.LogCaptureFixture) -> None:
    """N-079, N-080: uncounted, thread free, no lease; resume makes it due and it goes on behind its cursor."""
    caplog.set_level(logging.INFO, "rowsweep")
    gate = Gate(1)
    run = declared(field, gate).launch()
    sweeping = Background(field.tick)
    wait_for(gate.reached)
    elsewhere = rs.attach(run.run_id)
    assert elsewhere.pause("on call").words == "pausing"
    assert elsewhere.pause().words == "pausing"
    gate.open.set()
    assert sweeping.result().outcome == "suspended"
    row, job = field.row(run), field.job(run)
    assert (row.status, row.rows, row.wanted, job.state, job.attempt) == ("paused", 8, "pause", "suspended", 0)
    assert job.claimed_by is None
    (paused,) = fields_of(caplog.records, "sweeps.paused")
    assert paused == {"sweep": "count", "run_id": str(run.run_id), "reason": "asked"}
    assert field.worker().tick() == []
    resumed = elsewhere.resume("quiet again")
    assert resumed.status == "running"
    (told,) = fields_of(caplog.records, "sweeps.resumed")
    assert told == {"sweep": "count", "run_id": str(run.run_id), "reason": "quiet again"}
    assert field.tick().outcome == "completed"
    assert hits(field) == [(1, 20)]
    assert run.wait(timeout="1s")["batches"] == 5


def test_what_a_verb_brought_about_itself_is_logged_by_it(field: Field, caplog: pytest.LogCaptureFixture) -> None:
    """D-31, N-080, N-081, N-109: with the reason that was given, without a password."""
    caplog.set_level(logging.INFO, "rowsweep")
    run = declared(field).launch()
    run.pause("postgresql://a:secret@h/d is slow")
    (paused,) = fields_of(caplog.records, "sweeps.paused")
    assert paused["reason"] == "postgresql://a:***@h/d is slow"
    run.cancel("enough")
    (cancelled,) = fields_of(caplog.records, "sweeps.cancelled")
    assert cancelled == {"sweep": "count", "run_id": str(run.run_id), "reason": "enough"}


def test_a_run_that_nobody_works_is_paused_and_cancelled_at_once(field: Field) -> None:
    """N-080, N-081: settled in SQL, without a worker."""
    sweep = declared(field)
    run = sweep.launch()
    assert run.pause().status == "paused"
    assert field.job(run).state == "suspended"
    assert field.worker().tick() == []
    assert run.resume().status == "running"
    assert run.cancel("not today").status == "cancelled"
    assert (field.job(run).state, field.row(run).last_error) == ("cancelled", "not today")
    with pytest.raises(SweepCancelled, match="not today"):
        run.wait(timeout="1s")
    assert field.worker().tick() == []
    assert hits(field) == [(0, 20)]


def test_a_wish_is_felt_within_a_second_while_a_page_is_being_made(field: Field) -> None:
    """N-079, N-081: the statement in flight is cancelled through libpq, its batch rolls back, no half batch."""

    def sleeping(batch: rs.Batch) -> pl.DataFrame:
        if batch.index == 2:
            batch.execute("update orders set hits = 99 where id = 9")
            inside.set()
            batch.execute("select pg_sleep(60)")
        return counting(batch)

    inside = threading.Event()
    run = declared(field, sleeping, statement_timeout="90s").launch()
    sweeping = Background(field.tick)
    wait_for(inside)
    began = time.monotonic()
    assert run.cancel().status == "cancelled"
    assert sweeping.result(15).outcome == "interrupted"
    assert time.monotonic() - began < 15
    assert hits(field) == [(0, 12), (1, 8)]
    row, job = field.row(run), field.job(run)
    assert (row.status, row.rows, job.state) == ("cancelled", 8, "cancelled")
    until(lambda: field.one("select count(*) from pg_stat_activity where query like '%pg_sleep(60)' "
                            "and state = 'active'") == 0, "the statement ends")  # fmt: skip


def test_a_set_based_batch_in_flight_is_cancelled_too(field: Field) -> None:
    """N-081: without a handler there is only the statement."""
    field.orders(8)
    with field.other() as other, other.transaction():
        other.execute("select from orders where id = 6 for update")
        run = rs.backfill(
            "slow", rows=rs.Rows("orders"), set={"band": "'x'"}, batch_rows=4, adapt=False, lock_timeout="90s"
        ).launch()
        sweeping = Background(field.tick)
        until(lambda: field.row(run).rows == 4, "the first batch is done")
        run.cancel()
        assert sweeping.result(10).outcome == "interrupted"
    assert field.one("select count(*) from orders where band = 'x'") == 4


def test_a_pause_is_felt_between_pages_that_have_no_rows(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-079: `wanted` is read before each page, whether it was a batch or not."""
    field.orders(40)
    run = rs.backfill(
        "sparse", rows=rs.Rows("orders", where="id = 40"), set={"band": "'x'"}, batch_rows=2, adapt=False
    ).launch()
    steer = passes.Pass._steer
    pages: list[int] = []

    def paused(self: passes.Pass, wanted: Any) -> None:
        pages.append(1)
        if len(pages) == 3:
            run.pause()
        steer(self, wanted)

    monkeypatch.setattr(passes.Pass, "_steer", paused)
    assert field.tick().outcome == "suspended"
    assert len(pages) <= 5
    assert field.row(run).status == "paused"
    run.resume()
    assert field.finish(run)["rows"] == 1


def test_a_failed_or_cancelled_run_is_taken_up_from_its_checkpoint(field: Field) -> None:
    """N-082, D-36: attempts counted anew, nothing swept twice."""
    broken = [True]

    def handler(batch: rs.Batch) -> pl.DataFrame:
        if batch.index == 2 and broken:
            raise ValueError("bad row")
        return counting(batch)

    run = declared(field, handler, retry=NOW).launch()
    with pytest.raises(SweepFailed, match="bad row"):
        field.finish(run)
    row = field.row(run)
    assert (row.status, row.rows, field.job(run).state) == ("failed", 8, "dead")
    assert row.finished_at is not None
    broken.clear()
    assert run.resume().status == "running"
    row, job = field.row(run), field.job(run)
    assert (row.last_error, row.finished_at, job.attempt, job.state) == (None, None, 0, "ready")
    run.cancel()
    with pytest.raises(SweepNotLive):
        run.pause()
    run.resume()
    assert field.finish(run)["rows"] == 20
    assert hits(field) == [(1, 20)]


def test_a_live_run_is_tuned_and_feels_it_while_it_waits(field: Field) -> None:
    """N-122: a wait for the rate ends within about a second; rate and batch size are those of the next batch."""
    sizes: list[int] = []

    def noting(batch: rs.Batch) -> pl.DataFrame:
        sizes.append(batch.frame.height)
        return counting(batch)

    run = declared(field, noting, rate="4/h").launch()
    sweeping = Background(field.tick)
    until(lambda: run.snapshot().waiting_for == "rate", "the rate holds it")
    assert run.snapshot().rows == 4
    assert run.snapshot().options == {"declared_rate": "4/h"}
    tuned = rs.attach(run.run_id).tune(rate="none", batch_rows=8)
    assert (tuned.options["rate"], tuned.options["batch_rows"]) == ("none", 8)
    assert tuned.options["tuned"]["by"] == "tester"
    assert sweeping.result(10).outcome == "completed"
    assert sizes == [4, 8, 8]
    assert hits(field) == [(1, 20)]
    with pytest.raises(SweepNotLive, match="tuned"):
        run.tune(rate="1/s")
    for wrong in ({}, {"rate": "fast"}, {"batch_rows": 0}, {"batch_rows": 2**70}):
        with pytest.raises(InvalidOption):
            run.tune(**wrong)


def test_what_was_tuned_holds_for_the_next_worker_too(field: Field) -> None:
    """N-122, D-4: kept with the run, also where nobody works it."""
    run = declared(field).launch()
    run.tune(batch_rows=10)
    assert field.finish(run)["batches"] == 2


def test_what_has_ended_can_be_neither_paused_nor_cancelled_nor_resumed(field: Field) -> None:
    """N-079: doing it twice is doing it once; an end stays an end."""
    run = declared(field).launch()
    field.finish(run)
    with pytest.raises(NotCancellable):
        run.cancel()
    with pytest.raises(SweepNotLive):
        run.pause()
    with pytest.raises(SweepNotLive):
        run.resume()
    again = rs.backfill("again", counting, rows=rs.Rows("orders")).launch()
    again.cancel("first")
    assert again.cancel("second").last_error == "first"


def test_an_attempt_past_its_timeout_ends_and_the_next_goes_on_behind_it(field: Field) -> None:
    """D-1, S-140: `timeout` bounds one attempt; its batch in flight rolls back, what is committed counts."""
    asleep = threading.Event()

    def falling_asleep(batch: rs.Batch) -> pl.DataFrame:
        if batch.index == 2 and not asleep.is_set():
            asleep.set()
            batch.execute("select pg_sleep(60)")
        return counting(batch)

    sweep = declared(field, falling_asleep, timeout="2s", statement_timeout="90s", retry=rs.Retry(base="1ms"))
    run = sweep.launch()
    ended = field.tick()
    assert (ended.outcome, getattr(ended.error, "code", None)) == ("retried", "X_JOB_TIMEOUT")
    assert field.row(run).rows == 8
    assert field.finish(run)["rows"] == 20
    assert hits(field) == [(1, 20)]


def test_a_drain_stops_behind_the_batch_in_flight(field: Field) -> None:
    """DESIGN §4: uncounted, due at once for the next worker, which goes on behind the cursor."""
    gate = Gate(1)
    lifecycle = Lifecycle()
    run = declared(field, gate).launch()
    worker = field.worker(lifecycle=lifecycle)
    worker.start()
    wait_for(gate.reached)
    stopping = Background(lambda: worker.stop("deploy", deadline_at=real_monotonic() + 20))
    until(lambda: worker.state == "draining", "it drains")
    gate.open.set()
    stopping.result()
    row, job = field.row(run), field.job(run)
    assert (row.status, row.rows, row.batches) == ("running", 8, 2)
    assert (job.state, job.attempt, job.claimed_by) == ("ready", 0, None)
    assert row.last_error is None
    field.workers.clear()
    assert field.finish(run)["rows"] == 20
    assert hits(field) == [(1, 20)]


def test_a_drain_cuts_off_a_batch_that_does_not_end_in_time(field: Field) -> None:
    """DESIGN §4: at the margin its statement is cancelled and the batch rolls back, handed back uncounted."""
    inside = threading.Event()
    slow = [True]

    def sleeping(batch: rs.Batch) -> pl.DataFrame:
        if batch.index == 1 and slow:
            inside.set()
            batch.execute("select pg_sleep(60)")
        return counting(batch)

    run = declared(field, sleeping, statement_timeout="90s").launch()
    worker = field.worker(margin="2s")
    worker.start()
    wait_for(inside)
    worker.stop("deploy", deadline_at=real_monotonic() + 2.5)
    row, job = field.row(run), field.job(run)
    assert (row.status, row.rows, job.state, job.attempt) == ("running", 4, "ready", 0)
    assert hits(field) == [(0, 16), (1, 4)]
    slow.clear()
    field.workers.clear()
    assert field.finish(run)["rows"] == 20
    assert hits(field) == [(1, 20)]


def test_only_the_last_failed_attempt_is_the_sweep_s_failure(field: Field, caplog: pytest.LogCaptureFixture) -> None:
    """D-31: `sweeps.failed` says how many rows stand."""

    def failing(batch: rs.Batch) -> pl.DataFrame:
        if batch.index == 2:
            raise ValueError("no")
        return counting(batch)

    run = declared(field, failing, retry=NOW).launch()
    with pytest.raises(SweepFailed):
        field.finish(run)
    assert len(fields_of(caplog.records, "jobs.attempt.failed")) == 3
    (failed,) = fields_of(caplog.records, "sweeps.failed")
    assert (failed["sweep"], failed["run_id"], failed["rows"]) == ("count", str(run.run_id), 8)
    assert "ValueError: no" in failed["error"]
