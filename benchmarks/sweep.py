"""How fast a sweep is beside loops written by hand, how fast it resumes, and what it costs when there is nothing to do.

Every measurement is of one whole sweep of a table made anew: claim, gate, setup, pages, checkpoints, ledger, settle.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import psycopg

import rowsweep as rs
from benchmarks.loops import bands, cursor_table_loop, frame_loop, set_loop, split_set_loop
from benchmarks.measure import Figure, interleave
from benchmarks.tables import ROUNDS, ROWS, app, dsn, make_orders, worked
from rowsweep.sweeps.handle import Sweep

_MEMORY_BAR_MB = 250.0
_IDLE_SECONDS = 60.0
_IDLE_BAR = 30.0
_TOTALS = {"total": "price * qty", "writes": "writes + 1"}


def _set(batch_rows: int, bar: float) -> Figure:
    sweep = rs.backfill(f"set-{batch_rows}", rows=rs.Rows("ours"), set=_TOTALS, batch_rows=batch_rows, adapt=False)
    return _rate(f"sweep.set.{batch_rows}", sweep, _best(set_loop, split_set_loop, batch_rows), bar)


def _set_beside_cursor_table() -> Figure:
    sweep = rs.backfill("set-cursor", rows=rs.Rows("ours"), set=_TOTALS, batch_rows=1_000, adapt=False)
    return _rate("sweep.set.cursor-table", sweep, lambda name: cursor_table_loop(dsn(), name, 1_000), 1.0)


def _frame() -> Figure:
    rows = rs.Rows("ours", columns=["id", "price"])
    sweep = rs.backfill("frame", lambda batch: bands(batch.frame), rows=rows, batch_rows=5_000, adapt=False)
    return _rate("sweep.frame.5000", sweep, lambda name: frame_loop(dsn(), name, 5_000), 1.0)


def _best(one: Callable[[str, str, int], int], other: Callable[[str, str, int], int], batch_rows: int) -> Any:
    """Take the faster of two forms of the reference on this machine."""
    speeds = []
    for loop in (one, other):
        make_orders("reference", min(ROWS, 300_000))
        began = time.perf_counter()
        loop(dsn(), "reference", batch_rows)
        speeds.append((time.perf_counter() - began, loop))
    fastest = min(speeds, key=lambda pair: pair[0])[1]
    return lambda name: fastest(dsn(), name, batch_rows)


def _rate(name: str, sweep: Sweep[Any], loop: Callable[[str], int], bar: float) -> Figure:
    def ours() -> float:
        make_orders("ours")
        return swept(sweep)

    def reference() -> float:
        make_orders("reference")
        gc.collect()
        began = time.perf_counter()
        loop("reference")
        return ROWS / (time.perf_counter() - began)

    medians = interleave(ours, reference, ROUNDS)
    return Figure(name=name, unit="rows/s", ours=medians.ours, reference=medians.reference, bar=bar)


def swept(sweep: Sweep[Any], rows: int = ROWS) -> float:
    """Sweep a whole table of so many rows through a worker, and answer rows a second."""
    run = sweep.launch(force=True)
    seconds = worked()
    snapshot = run.snapshot()
    assert (snapshot.status, snapshot.rows) == ("done", rows), snapshot
    return rows / seconds


def resume() -> Figure:
    """Measure from the claim to the first new batch, with 1,000,000 batches behind the cursor and with 10."""
    make_orders("ours", 200_000)
    medians = interleave(lambda: _resumed(1_000_000), lambda: _resumed(10), max(ROUNDS, 5))
    return Figure(
        name="sweep.resume", unit="s", ours=medians.ours, reference=medians.reference, bar=2.0, better="lower"
    )


def _resumed(batches: int) -> float:
    seen: list[float] = []

    def note(_: rs.Batch) -> None:
        seen.append(time.perf_counter())
        if len(seen) == 11:
            run.pause()

    sweep = rs.backfill("resumed", note, rows=rs.Rows("ours", columns=["id"]), batch_rows=100, adapt=False)
    run = sweep.launch(force=True)
    worker = app().worker(drain_on_shutdown=False)
    worker.tick()
    with psycopg.connect(dsn(), autocommit=True) as connection:
        connection.execute(
            "update x_job_steps set output = jsonb_set(jsonb_set(output, '{index}', to_jsonb(%(last)s)), '{rows}',"
            " to_jsonb(%(rows)s)) where run_id = %(run)s and kind = 'checkpoint'",
            {"last": batches - 1, "rows": batches * 100, "run": run.run_id},
        )
    run.resume()
    seen.clear()
    began = time.perf_counter()
    worker.tick()
    worker.stop()
    run.cancel("measured")
    return seen[0] - began


def memory() -> Figure:
    """Measure the peak memory of a worker process over a frame sweep; the reference is the limit itself."""
    make_orders("ours", ROWS)
    command = [sys.executable, "-m", "benchmarks.workers.frame", dsn()]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    peak = float(done.stdout.split()[-1])
    return Figure(name="sweep.memory", unit="MB", ours=peak, reference=_MEMORY_BAR_MB, bar=1.0, better="lower")


def idle() -> Figure:
    """Count the statements of a worker with nothing to do over a minute; the reference is the limit itself."""
    sent: list[str] = []
    execute = psycopg.Cursor.execute

    def counted(self: Any, query: Any, *given: Any, **named: Any) -> Any:
        sent.append(str(query))
        return execute(self, query, *given, **named)

    worker = app().worker(drain_on_shutdown=False)
    worker.start()
    try:
        time.sleep(5)
        psycopg.Cursor.execute = counted  # type: ignore[method-assign]
        time.sleep(_IDLE_SECONDS)
    finally:
        psycopg.Cursor.execute = execute  # type: ignore[method-assign]
        worker.stop()
    return Figure(
        name="sweep.idle", unit="statements/min", ours=float(len(sent)), reference=_IDLE_BAR, bar=1.0, better="lower"
    )


FIGURES: dict[str, Callable[[], Figure]] = {
    "sweep.set.1000": lambda: _set(1_000, 0.90),
    "sweep.set.5000": lambda: _set(5_000, 0.97),
    "sweep.set.cursor-table": _set_beside_cursor_table,
    "sweep.frame.5000": _frame,
    "sweep.resume": resume,
    "sweep.memory": memory,
    "sweep.idle": idle,
}
