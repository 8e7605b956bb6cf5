"""A pass: resumed where it stood, with a bounded start, and a ledger row that is true at every moment."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, cast

import polars as pl
import pytest

import rowsweep as rs
from rowsweep.errors import CursorStuck, InvalidCheckpoint, SweepFailed
from rowsweep.jobs.registry import reset_jobs
from rowsweep.sweeps.batch.pages import PageFinder
from rowsweep.sweeps.passes import table as passes
from rowsweep.sweeps.passes.position import as_checkpoint
from rowsweep.sweeps.run import ledger_of
from rowsweep.telemetry import instruments
from tests.statements import note_statements
from tests.sweeps.field import NONE_SEEN, NOW, Background, Field, fields_of, wait_for

ORDERS = rs.Rows("orders")


def counting(before: Callable[[rs.Batch], None] | None = None) -> Callable[[rs.Batch], pl.DataFrame]:
    """Make a handler that adds 1 to `hits`, after what is to happen before."""

    def count(batch: rs.Batch) -> pl.DataFrame:
        answer = batch.frame.select("id", hits=pl.col("hits") + 1)
        if before is not None:
            before(batch)
        return answer

    return count


def counted(field: Field, rows: int) -> None:
    """Make `orders` with a counter of how often a row was swept."""
    field.orders(rows, more=", hits int not null default 0")


def hits(field: Field) -> list[tuple[int, int]]:
    """Answer how many rows were swept how often."""
    return [(times, rows) for times, rows in field.sql("select hits, count(*) from orders group by 1 order by 1")]


def raising(*indexes: int) -> Callable[[rs.Batch], None]:
    """Raise once at each of these batches."""
    left = list(indexes)

    def before(batch: rs.Batch) -> None:
        if batch.index in left:
            left.remove(batch.index)
            raise RuntimeError(f"at batch {batch.index}")

    return before


def broken(*_: Any) -> None:
    """Stand in for what must not be called, or must fail."""
    raise RuntimeError("broken")


@pytest.mark.parametrize("at", [0, 1, 3, 4])
def test_a_pass_goes_on_behind_its_checkpoint(field: Field, at: int) -> None:
    """S-183, S-187, S-188, S-190, S-193: every row once, absolute progress, whatever batch failed."""
    counted(field, 18)
    sweep = rs.backfill("count", counting(raising(at)), rows=ORDERS, batch_rows=4, adapt=False)
    run = sweep.launch()
    assert field.tick().outcome == "retried"
    row = field.row(run)
    assert (row.status, row.rows, row.written, row.batches) == ("running", 4 * at, 4 * at, at)
    assert f"at batch {at}" in (row.last_error or "")
    pages = field.steps(run).get("sweep:pages")
    assert (pages is None) == (at == 0)
    if pages is not None:
        cursor = [str(4 * at)]
        assert pages.output == {"index": at - 1, "cursor": cursor, "rows": 4 * at, "written": 4 * at, "plan": None}
        assert row.cursor == cursor
    assert field.finish(run) == {
        "rows": 18,
        "written": 18,
        "batches": 5,
        "rejected": 0,
        "remaining": None,
        "late": NONE_SEEN,
    }
    assert hits(field) == [(1, 18)]
    row = field.row(run)
    assert (row.status, row.rows, row.batches, row.cursor) == ("done", 18, 5, None)
    assert row.finished_at is not None
    assert (field.job(run).result or {})["rows"] == 18


def test_a_pass_says_when_it_begins_what_it_commits_and_how_it_ended(
    field: Field, caplog: pytest.LogCaptureFixture
) -> None:
    """D-31: with their levels and their fields."""
    caplog.set_level(logging.DEBUG, "rowsweep")
    field.orders(10)
    run = rs.backfill("totals", rows=ORDERS, set={"total": "price * qty"}, batch_rows=6, adapt=False).launch()
    field.finish(run)
    named = {"sweep": "totals", "run_id": str(run.run_id)}
    levels = {record.getMessage(): record.levelname for record in caplog.records}
    assert (levels["sweeps.started"], levels["sweeps.batch"], levels["sweeps.finished"]) == ("INFO", "DEBUG", "INFO")
    assert fields_of(caplog.records, "sweeps.started") == [{**named, "kind": "backfill"}]
    first, second = fields_of(caplog.records, "sweeps.batch")
    assert {**first, "duration_ms": None} == {**named, "index": 0, "rows": 6, "duration_ms": None, "batch_rows": 6}
    assert (second["index"], second["rows"]) == (1, 4)
    (finished,) = fields_of(caplog.records, "sweeps.finished")
    spent = finished.pop("active_seconds")
    assert finished == {**named, "kind": "backfill", "rows": 10, "written": 10, "batches": 2}
    assert spent >= 0


def test_every_committed_batch_is_counted(field: Field) -> None:
    """D-30: rows and length, by sweep; a batch that rolled back is none."""
    counted(field, 10)
    told: list[tuple[str, int, bool]] = []

    class Meter:
        def record_batch(self, sweep: str, *, rows: int, seconds: float) -> None:
            told.append((sweep, rows, seconds > 0))

        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: None

    instruments.use_instruments(cast("instruments.Meter", Meter()), None)
    try:
        handler = counting(raising(1))
        run = rs.backfill("hit", handler, rows=ORDERS, batch_rows=6, adapt=False, retry=NOW).launch()
        field.finish(run)
    finally:
        instruments.reset_instruments()
    assert told == [("hit", 6, True), ("hit", 4, True)]


def test_the_steps_of_a_pass_are_three(field: Field) -> None:
    """D-5, S-182, S-185: setup, pages in place, finish; the end is a checkpoint with a null cursor."""
    counted(field, 9)
    run = rs.backfill("count", counting(), rows=ORDERS, batch_rows=4, adapt=False).launch()
    field.finish(run)
    steps = field.steps(run)
    assert sorted(steps) == ["sweep:finish", "sweep:pages", "sweep:setup"]
    assert steps["sweep:pages"].output == {"index": 2, "cursor": None, "rows": 9, "written": 9, "plan": None}
    assert steps["sweep:pages"].kind == "checkpoint"
    setup = steps["sweep:setup"].output
    assert (setup["table"]["name"], setup["table"]["key"], setup["upper"]) == ("orders", ["id"], None)
    assert (setup["estimate"], setup["estimate_source"]) == (9, "count")
    assert {"at", "params", "source"} <= set(setup)


def test_an_end_that_was_reached_is_not_looked_for_again(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-185: a null cursor found on resume ends the loop without reading a page."""
    counted(field, 9)
    sweep = rs.backfill("count", counting(), rows=ORDERS, batch_rows=4, adapt=False, retry=NOW)
    run = sweep.launch()
    finish = passes.Pass._finish_ledger
    monkeypatch.setattr(passes.Pass, "_finish_ledger", broken)
    assert field.tick().outcome == "retried"
    monkeypatch.setattr(passes.Pass, "_finish_ledger", finish)
    monkeypatch.setattr(PageFinder, "_search", broken)
    field.sql("insert into orders (id, price, qty) values (100, 1, 1)")
    assert field.finish(run)["rows"] == 9
    assert hits(field) == [(0, 1), (1, 9)]


def statements_until(field: Field, run: rs.Run, monkeypatch: pytest.MonkeyPatch) -> int:
    """Resume a run and count what its thread sends before its first new page."""
    sent: list[str] = []
    thread: list[int] = []
    find = PageFinder._search
    begin = passes.Pass._open

    def count(query: str, _values: Any) -> None:
        if thread == [threading.get_ident()]:
            sent.append(query)

    def opened(self: passes.Pass) -> Any:
        thread.append(threading.get_ident())
        return begin(self)

    def found(*given: Any) -> Any:
        thread.clear()
        return find(*given)

    with monkeypatch.context() as patched:
        note_statements(patched, count)
        patched.setattr(PageFinder, "_search", found)
        patched.setattr(passes.Pass, "_open", opened)
        field.make_due(run)
        field.tick()
    return len(sent)


def test_resuming_costs_the_same_after_many_batches(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-189: hydrate, gate, ledger, page; a bounded number of statements before the first new row."""
    costs = []
    for name, at in (("few", 2), ("many", 150)):
        field.sql("drop table if exists orders")
        counted(field, 160)
        run = rs.backfill(name, counting(raising(at, at)), rows=ORDERS, batch_rows=1, adapt=False).launch()
        field.tick()
        costs.append(statements_until(field, run, monkeypatch))
        field.finish(run)
        assert hits(field) == [(1, 160)]
    assert costs[0] == costs[1]
    assert 0 < costs[0] <= 12


def test_a_page_without_matches_moves_the_cursor_and_nothing_else(field: Field) -> None:
    """S-191: no batch, no progress; its cursor is stored."""
    counted(field, 40)
    rows = rs.Rows("orders", where="id = 3 or id > 34")
    seen: list[int] = []

    def before(batch: rs.Batch) -> None:
        seen.append(batch.index)
        if batch.index == 1:
            raise RuntimeError("once")

    run = rs.backfill("count", counting(before), rows=rows, batch_rows=4, adapt=False).launch()
    field.tick()
    row, pages = field.row(run), field.steps(run)["sweep:pages"].output
    assert (pages["index"], pages["cursor"], pages["rows"]) == (0, ["32"], 1)
    assert (row.batches, row.rows, row.cursor) == (1, 1, ["4"])
    assert seen == [0, 1]


def test_attempts_start_anew_when_the_checkpoint_moved(field: Field) -> None:
    """N-017: the fenced write sets the attempt back; one that fails three times in a place still ends."""
    counted(field, 24)
    failing = raising(0, 1, 1)
    run = rs.backfill("count", counting(failing), rows=ORDERS, batch_rows=4, adapt=False, retry=NOW).launch()
    attempts = []
    for _ in range(3):
        field.make_due(run)
        field.tick()
        attempts.append(field.job(run).attempt)
    assert field.finish(run)["rows"] == 24
    assert hits(field) == [(1, 24)]
    assert attempts == [1, 1, 2]
    again = rs.backfill("stuck", counting(raising(2, 2, 2)), rows=ORDERS, batch_rows=4, adapt=False, retry=NOW).launch()
    with pytest.raises(SweepFailed):
        field.finish(again)
    assert field.row(again).rows == 8


def test_a_moved_checkpoint_saves_the_last_attempt(field: Field) -> None:
    """N-017: also within the attempt that is the last by its count."""
    counted(field, 12)
    failing = raising(0, 1, 2)
    run = rs.backfill(
        "count", counting(failing), rows=ORDERS, batch_rows=4, adapt=False, retry=rs.Retry(attempts=2, base="0s")
    ).launch()
    assert field.finish(run)["rows"] == 12
    assert hits(field) == [(1, 12)]


def test_a_cursor_that_does_not_advance_ends_the_run(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-053: X_SWEEP_STUCK, terminal, never a loop."""
    counted(field, 12)
    find = PageFinder._execute

    def stuck(self: PageFinder, text: str, values: Any) -> Any:
        return find(self, text, values | {"rs_c0": "0"} if "rs_c0" in values else values)

    monkeypatch.setattr(PageFinder, "_execute", stuck)
    run = rs.backfill("count", counting(), rows=ORDERS, batch_rows=4, adapt=False).launch()
    with pytest.raises(SweepFailed, match="does not advance"):
        field.finish(run)
    row = field.row(run)
    assert (row.last_error_code, row.rows, field.job(run).attempt) == (CursorStuck.code, 4, 1)


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        "done",
        {"index": 0, "cursor": [1], "rows": 0, "written": 0, "plan": None},
        {"index": -2, "cursor": ["1"], "rows": 0, "written": 0, "plan": None},
        {"index": 0, "cursor": ["1"], "rows": True, "written": 0, "plan": None},
        {"index": 0, "cursor": [], "rows": 0, "written": 0, "plan": None},
        {"index": 0, "cursor": ["1"], "rows": 0, "written": 0, "plan": {"to": ["2"]}},
    ],
)
def test_a_checkpoint_that_no_pass_stored_is_refused(value: Any) -> None:
    """S-186."""
    with pytest.raises(InvalidCheckpoint, match="'sweep:pages'"):
        as_checkpoint(value, "sweep:pages")


def test_a_checkpoint_that_was_tampered_with_stops_the_run(field: Field) -> None:
    """S-186: terminal, with the command that shows it."""
    counted(field, 12)
    run = rs.backfill("count", counting(raising(1)), rows=ORDERS, batch_rows=4, adapt=False).launch()
    field.tick()
    field.queue_sql("""update {x_job_steps} set output = '"gone"' where name = 'sweep:pages'""")
    with pytest.raises(SweepFailed, match="rowsweep jobs show"):
        field.finish(run)
    assert field.row(run).last_error_code == "X_SWEEP_CHECKPOINT_INVALID"


def test_changed_code_goes_on_with_a_warning_and_the_new_checksum(
    field: Field, caplog: pytest.LogCaptureFixture
) -> None:
    """N-071: handler or set changed under way."""
    counted(field, 12)
    first = rs.backfill("count", counting(raising(1)), rows=ORDERS, batch_rows=4, adapt=False)
    run = first.launch()
    field.tick()

    def changed(batch: rs.Batch) -> pl.DataFrame:
        return batch.frame.select("id", hits=pl.col("hits") + 1, band=pl.lit("new"))

    reset_jobs()
    second = rs.backfill("count", changed, rows=ORDERS, batch_rows=4, adapt=False)
    field.finish(run)
    assert hits(field) == [(1, 12)]
    assert field.one("select count(*) from orders where band = 'new'") == 8
    assert field.row(run).checksum == second.checksum != first.checksum
    (warned,) = fields_of(caplog.records, "sweeps.code-changed")
    assert (warned["sweep"], warned["checksum"]) == ("count", second.checksum)


@pytest.mark.parametrize(
    "rows",
    [
        rs.Rows("orders", where="id > 3"),
        rs.Rows("orders", key="qty"),
        rs.Rows("others"),
        rs.Rows("orders", until="start"),
    ],
)
def test_another_table_key_or_where_under_way_is_refused(field: Field, rows: rs.Rows) -> None:
    """N-071: X_BACKFILL_CHANGED, terminal; the row keeps what was done."""
    counted(field, 12)
    run = rs.backfill("count", counting(raising(1)), rows=ORDERS, batch_rows=4, adapt=False).launch()
    field.tick()
    reset_jobs()
    rs.backfill("count", counting(), rows=rows, batch_rows=4, adapt=False)
    with pytest.raises(SweepFailed, match="changed while its run was under way"):
        field.finish(run)
    row = field.row(run)
    assert (row.last_error_code, row.rows) == ("X_BACKFILL_CHANGED", 4)


def test_a_resumed_pass_uses_the_params_of_its_setup(field: Field) -> None:
    """N-071: a declaration whose params are computed anew sweeps what it began to sweep."""
    counted(field, 12)

    def rows(limit: int) -> rs.Rows:
        return rs.Rows("orders", where="id <= %(limit)s", params={"limit": limit})

    run = rs.backfill("count", counting(raising(1)), rows=rows(6), batch_rows=4, adapt=False).launch()
    field.tick()
    reset_jobs()
    rs.backfill("count", counting(), rows=rows(100), batch_rows=4, adapt=False)
    assert field.finish(run)["rows"] == 6


def test_a_run_that_was_enqueued_gets_its_row_when_its_pass_starts(field: Field) -> None:
    """N-072, S-198: without launch there is no row before; it is as true afterwards."""
    counted(field, 6)
    sweep = rs.backfill("count", counting(), rows=ORDERS)
    result = sweep.enqueue()
    assert ledger_of(field.app.driver).get(result.run_id) is None
    field.tick()
    row = field.row(result.run_id)
    assert (row.status, row.rows, row.kind, row.checksum) == ("done", 6, "backfill", sweep.checksum)
    assert (row.environment, row.launched_by) == ("development", "tester")


def test_batch_size_and_rate_of_a_launch_travel_with_the_run(field: Field) -> None:
    """D-4: `x_backfills.options`, also for the worker that takes it up again."""
    counted(field, 6)
    run = rs.backfill("count", counting(raising(1)), rows=ORDERS, adapt=False).launch(batch_rows=2, rate="100000/s")
    assert field.row(run).options == {"batch_rows": 2, "rate": "100000/s"}
    assert field.finish(run)["batches"] == 3


def test_a_rate_paces_the_batches(field: Field) -> None:
    """S-205, D-6: the batch after one of r rows starts r / rate after that one started."""
    counted(field, 12)
    run = rs.backfill("count", counting(), rows=ORDERS, batch_rows=4, adapt=False, rate="40/s").launch()
    field.tick()
    row = field.row(run)
    assert row.rows == 12
    assert 0.2 <= row.active_seconds < 5


def test_a_pass_holds_no_connection_when_it_is_over(field: Field) -> None:
    """S-194: done, failed or interrupted."""
    counted(field, 6)
    for name, before in (("done", None), ("failed", raising(0))):
        run = rs.backfill(name, counting(before), rows=ORDERS, retry=rs.Retry(attempts=1)).launch()
        field.tick()
        assert field.row(run).status == name
        assert field.one("select count(*) from pg_stat_activity where state like 'idle in transaction%'") == 0


def test_two_workers_share_nothing_of_a_run(field: Field) -> None:
    """N-060, N-072: launched twice, one run; claimed once."""
    counted(field, 12)
    inside, go_on = threading.Event(), threading.Event()

    def before(batch: rs.Batch) -> None:
        inside.set()
        wait_for(go_on)

    sweep = rs.backfill("count", counting(before), rows=ORDERS, batch_rows=4, adapt=False)
    run = sweep.launch()
    again = sweep.launch()
    assert (again.run_id, again.attached) == (run.run_id, True)
    first = Background(field.worker().tick)
    wait_for(inside)
    assert field.worker().tick() == []
    go_on.set()
    first.result()
    assert hits(field) == [(1, 12)]


def test_a_ledger_row_of_another_writer_is_taken_up(field: Field) -> None:
    """N-070, S-196: the row is a report; the pass goes by its checkpoint, never by the row."""
    counted(field, 12)
    run = rs.backfill("count", counting(raising(2)), rows=ORDERS, batch_rows=4, adapt=False).launch()
    field.tick()
    field.queue_sql("update {x_backfills} set rows = 1, cursor = null, batches = 77")
    assert field.finish(run)["rows"] == 12
    assert (field.row(run).rows, field.row(run).batches) == (12, 3)
