"""A handler in other processes: what goes there and comes back is the same, and what dies there is replaced."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

import rowsweep as rs
from rowsweep.errors import SweepFailed
from rowsweep.sweeps.poison import work as aside
from tests.sweeps.executors import heavy
from tests.sweeps.executors.conftest import two_processes
from tests.sweeps.field import NOW, Field, until

KINDS = {
    "a_bool": ("boolean", "true"),
    "a_small": ("smallint", "-7"),
    "a_real": ("real", "'NaN'"),
    "a_double": ("double precision", "-0.0"),
    "a_numeric": ("numeric(30, 4)", "12345678901234567890.5000"),
    "a_free_numeric": ("numeric", "1.50"),
    "a_text": ("text", "E'a\\n\",''\\\\'"),
    "a_bytes": ("bytea", "'\\x00ff0a'"),
    "a_uuid": ("uuid", "'01234567-89ab-cdef-0123-456789abcdef'"),
    "a_json": ("jsonb", "'{\"a\": [1, null]}'"),
    "a_date": ("date", "'2024-02-29'"),
    "a_stamp": ("timestamptz", "'2024-02-29 12:00:00.123456+02'"),
    "a_span": ("interval", "'1 month 2 days 00:00:03'"),
    "a_list": ("integer[]", "'{1,null,3}'"),
    "a_reals": ("real[]", "'{NaN,-0}'"),
    "an_inet": ("inet", "'10.0.0.1/8'"),
}


def kinds(field: Field) -> None:
    """Make a table with a column of many a type, a row of values and a row of nulls."""
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in KINDS.items())
    values = ", ".join(value for _, value in KINDS.values())
    field.sql(f"create table kinds (id bytea primary key, {columns})")
    field.sql(f"insert into kinds values ('\\x00ff', {values})")
    field.sql("insert into kinds (id) values ('\\x01')")


@pytest.mark.parametrize("handler", [heavy.same, heavy.same_rows])
def test_a_page_comes_back_as_what_it_was(field: Field, process: ProcessPoolExecutor, handler: Any) -> None:
    """N-059, N-064: of every type, as a frame and as dicts, nulls too: nothing is written that did not change."""
    kinds(field)
    before = field.sql("select * from kinds order by id")
    totals = field.sweep(rs.backfill("kinds", handler, rows=rs.Rows("kinds"), executor=process))
    assert (totals["rows"], totals["written"]) == (2, 0)
    assert [repr(row) for row in field.sql("select * from kinds order by id")] == [repr(row) for row in before]


def test_an_error_comes_back_with_its_type_its_causes_and_its_traceback(
    field: Field, process: ProcessPoolExecutor
) -> None:
    """N-083: one that no pickle can make again is at least told by its name; a preview raises it as it is."""
    field.orders(8)
    sweep = rs.backfill("odd", heavy.odd, rows=heavy.ORDERS, executor=process)
    with pytest.raises(RuntimeError, match="row 6 is odd: six") as caught:
        sweep.preview(8)
    assert type(caught.value).__qualname__ == "OddError"
    assert getattr(caught.value, "retry", None) == "terminal"
    reason = caught.value.__cause__
    assert isinstance(reason, ValueError)
    assert str(reason) == "the reason"
    assert "heavy.py" in str(reason.__cause__)
    assert "raise OddError" in str(reason.__cause__)


def test_a_function_that_no_module_has_goes_by_value(field: Field, process: ProcessPoolExecutor) -> None:
    """N-060: defined in a notebook, or inside a function, over what surrounds it."""
    field.orders(4)
    factor = 3

    def scaled(batch: rs.Batch) -> Any:
        return batch.frame.select("id", total=batch.frame["qty"] * factor)

    field.sweep(rs.backfill("scaled", scaled, rows=heavy.ORDERS, executor=process))
    assert field.one("select bool_and(total = qty * 3) from orders")


def test_a_handler_under_a_decorator_is_found_by_its_name(field: Field, process: ProcessPoolExecutor) -> None:
    """N-060: where its module has the sweep under that name, the function is the sweep's."""
    field.orders(4)
    assert isinstance(heavy.decorated, rs.Sweep)
    function: Any = heavy.decorated.spec.handler  # type: ignore[attr-defined]
    field.sweep(rs.backfill("decorated", function, rows=heavy.ORDERS, executor=process))
    assert field.one("select bool_and(total = qty) from orders")


@pytest.mark.slow
def test_a_page_that_takes_its_process_down_fails_its_own_batch(field: Field) -> None:
    """N-083: whatever else was out with it is computed again, alone, by another pool."""
    field.orders(16)
    sweep = rs.backfill(
        "dying", heavy.dying, rows=heavy.ORDERS, batch_rows=4, adapt=False, executor=two_processes, retry=NOW
    )
    run = sweep.launch()
    with pytest.raises(SweepFailed):
        field.finish(run)
    row = field.row(run)
    assert (row.rows, row.batches, field.job(run).attempt) == (8, 2, 3)
    assert (row.last_error or "").startswith("BrokenProcessPool")
    assert "in batch 2, keys after (8) up to (12)" in (row.last_error or "")


@pytest.mark.slow
def test_a_row_that_takes_its_process_down_is_set_aside(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-084: each part that dies has another pool behind it, so no other row is blamed."""
    monkeypatch.setattr(aside, "BETWEEN_TRIES_SECONDS", 0.0)
    field.orders(16)
    sweep = rs.backfill(
        "dying", heavy.dying, rows=heavy.ORDERS, batch_rows=4, adapt=False, executor=two_processes, on_error="set-aside"
    )
    run = sweep.launch()
    assert field.finish(run)["rows"] == 15
    assert run.rejected()["key"].to_list() == ["10"]
    assert field.one("select count(*) from orders where total = qty * 2") == 15


@pytest.mark.slow
def test_a_pool_that_was_given_and_broke_is_no_rows_fault(field: Field) -> None:
    """N-084: it cannot be made anew here; the run fails with the way out, and sets nothing aside."""
    field.orders(16)
    given = two_processes()
    sweep = rs.backfill(
        "dying", heavy.dying, rows=heavy.ORDERS, batch_rows=4, adapt=False, executor=given, on_error="set-aside",
        retry=NOW,
    )  # fmt: skip
    run = sweep.launch()
    with pytest.raises(SweepFailed):
        field.finish(run)
    assert run.rejected().height == 0
    assert "a function that makes the pool" in (field.row(run).last_error or "")
    given.shutdown()


@pytest.mark.slow
def test_a_killed_process_is_replaced_without_failing_the_attempt(field: Field) -> None:
    """N-060: as the machine does when memory runs out; each row is written once."""
    field.orders(4_000, more=", hits int not null default 0")
    sweep = rs.backfill(
        "killed", heavy.counting, rows=rs.Rows("orders", columns=["id", "hits"]), batch_rows=100, adapt=False,
        executor=two_processes, rate="4000/s",
    )  # fmt: skip
    run = sweep.launch()
    known = {child.pid for child in multiprocessing.active_children()}
    with field.working():
        for rows in (500, 1_500):
            until(lambda least=rows: field.row(run).rows >= least)  # type: ignore[misc]
            os.kill(next(c.pid for c in multiprocessing.active_children() if c.pid not in known), signal.SIGKILL)  # type: ignore[arg-type]
        assert run.wait(timeout="60s")["rows"] == 4_000
    assert field.sql("select hits, count(*) from orders group by 1") == [(1, 4_000)]
    assert field.job(run).attempt == 1
    assert {child.pid for child in multiprocessing.active_children()} == known


@pytest.mark.slow
def test_a_drain_does_not_wait_for_what_runs_in_processes_of_its_own(field: Field) -> None:
    """N-058, S-194: the worker stops within its budget, and no process of the pool outlives the pass."""
    field.orders(8)

    def endless(batch: rs.Batch) -> None:
        while True:
            time.sleep(0.01)

    run = rs.backfill("endless", endless, rows=heavy.ORDERS, batch_rows=4, executor=two_processes).launch()
    known = {child.pid for child in multiprocessing.active_children()}
    worker = field.worker()
    worker.start()
    until(lambda: field.row(run).status == "running" and len(multiprocessing.active_children()) >= len(known) + 2)
    began = time.monotonic()
    worker.stop(deadline_at=began + 2)
    assert time.monotonic() - began < 10
    until(lambda: {child.pid for child in multiprocessing.active_children()} == known)


@pytest.mark.slow
def test_a_process_that_dies_in_the_middle_of_its_answer_is_noticed(field: Field, tmp_path: Path) -> None:
    """N-060: the pool itself would wait for the rest without end, and so would whoever shuts it down."""
    field.orders(16)
    sweep = rs.backfill(
        "half", heavy.half_answered, rows=heavy.ORDERS, batch_rows=4, adapt=False, executor=two_processes, input=str
    )
    run = sweep.launch(str(tmp_path / "died"))
    assert field.finish(run)["rows"] == 16
    assert (tmp_path / "died").exists()
    assert field.one("select count(*) from orders where total = qty * 2") == 16
    assert field.job(run).attempt == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_pass_that_is_cut_off_over_large_answers_ends_at_once(field: Field, seed: int) -> None:
    """S-194: half an answer in a pipe, and more pages asked for than a pool takes, hold up nobody."""
    field.orders(40_000)
    known = {child.pid for child in multiprocessing.active_children()}
    chance = random.Random(seed)
    sweep = rs.backfill(
        "large", heavy.large, rows=heavy.ORDERS, batch_rows=300, adapt=False, executor=two_processes, ahead=40
    )
    for _ in range(4):
        run = sweep.launch(force=True)
        worker = field.worker()
        worker.start()
        until(lambda run=run: field.row(run).rows > 0)  # type: ignore[misc]
        time.sleep(chance.uniform(0.0, 0.05))
        began = time.monotonic()
        run.cancel("enough")
        worker.stop()
        assert time.monotonic() - began < 15
    until(lambda: {child.pid for child in multiprocessing.active_children()} <= known)


SCRIPT = """
    import multiprocessing, os, sys, threading
    from concurrent.futures import ProcessPoolExecutor
    import rowsweep as rs
    from tests.sweeps.executors.heavy import ORDERS, same

    def told(batch):
        print(os.getpid(), flush=True)
        threading.Event().wait()

    def pool():
        return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))

    if __name__ == "__main__":
        app = rs.connect(sys.argv[1], schema=sys.argv[2], work=False)
        rs.backfill("orphans", told, rows=ORDERS, batch_rows=4, executor=pool).launch()
        app.worker().tick()
"""


@pytest.mark.slow
def test_the_processes_of_a_pool_end_with_a_worker_that_is_killed(field: Field, tmp_path: Path) -> None:
    """N-058: they would wait for it for ever, each with its memory."""
    field.orders(8)
    script = tmp_path / "orphans.py"
    script.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    command = [sys.executable, str(script), make_conninfo(field.dsn), field.queue]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as worker:
        assert worker.stdout is not None
        pids = [int(worker.stdout.readline()) for _ in range(2)]
        worker.kill()
    until(lambda: not any(Path(f"/proc/{pid}/stat").exists() for pid in pids), "the pool's end")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_processes_are_kept_at_work(field: Field, tmp_path: Path) -> None:
    """N-058: over 200,000 rows both compute nearly all the time; how much faster that is says `scale.executor`."""
    field.orders(200_000)
    spans = tmp_path / "spans"
    sweep = rs.backfill(
        "crunch", heavy.crunched, rows=heavy.ORDERS, batch_rows=2_000, adapt=False, executor=two_processes, input=str
    )
    assert field.sweep(sweep, str(spans))["rows"] == 200_000
    calls = [line.split() for line in spans.read_text(encoding="utf-8").splitlines()]
    begun, ended = [float(call[1]) for call in calls], [float(call[2]) for call in calls]
    assert len({pid for pid, _, _ in calls}) == 2
    assert (sum(ended) - sum(begun)) / (max(ended) - min(begun)) > 1.6
