"""A shard that is done takes over half of what another has left, under its hands, and no row is swept twice."""

from __future__ import annotations

import threading
import time
from itertools import count
from typing import Any

import polars as pl
import pytest

import rowsweep as rs
from rowsweep.sweeps.passes.position import KeyRange
from rowsweep.sweeps.shards import passes
from rowsweep.sweeps.shards.ranges import KeySpace
from tests.sweeps.field import Field, fields_of, until, wait_for

ROWS = 3_000


def table(field: Field) -> None:
    field.sql("create table things (k int primary key, n int not null default 0)")
    field.sql(f"insert into things select generate_series(1, {ROWS})")
    field.sql("analyze things")


def counting(name: str, *, shards: int) -> Any:
    """Declare a sweep that adds one to each row."""
    return rs.backfill(name, rows=rs.Rows("things"), set={"n": "n + 1"}, batch_rows=100, adapt=False, shards=shards)


def ranges_of(field: Field, run: rs.Run, shard: str) -> list[Any]:
    stored = field.steps(run)[f"sweep:pages{shard}"].output
    return [*stored["behind"], stored["range"]]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ranges of any size be worth halving."""
    monkeypatch.setattr(passes, "_BATCHES_WORTH_HALVING", 0)


class Held:
    """A handler that stops in the first batch of the second shard until the first one has taken a part of it."""

    def __init__(self) -> None:
        self.began, self.go = threading.Event(), threading.Event()
        self.pages: list[tuple[int, int]] = []
        self.page = (0, 0)

    def __call__(self, batch: rs.Batch) -> None:
        keys = [row["k"] for row in batch.rows]
        self.pages.append((keys[0], keys[-1]))
        batch.execute("update things set n = n + 1 where k = any(%s)", [keys])
        if keys[0] <= ROWS / 2:
            wait_for(self.began)
        elif not self.began.is_set():
            self.page = keys[0], keys[-1]
            self.began.set()
            wait_for(self.go)


def lent(field: Field, held: Held, *, atomic: bool) -> tuple[rs.Run, int]:
    """Run two shards, the second of them held in its first batch until it was taken from; answer where it ends then."""
    table(field)
    sweep = rs.backfill("lend", held, rows=rs.Rows("things"), batch_rows=1_200, adapt=False, shards=2, atomic=atomic)
    run = sweep.launch()
    with field.working(concurrency=2):
        wait_for(held.began)
        until(lambda: len(ranges_of(field, run, "")) > 1, "a part of it taken over")
        held.go.set()
        assert run.wait("30s")["rows"] == ROWS
    return run, int(ranges_of(field, run, ":s02")[0][1][0])


@pytest.mark.usefixtures("eager")
def test_a_batch_that_ends_behind_the_moved_end_rolls_back_and_is_cut(
    field: Field, caplog: pytest.LogCaptureFixture
) -> None:
    """N-087, N-062: the closing statement asks for the checkpoint the batch began from."""
    caplog.set_level("INFO", logger="rowsweep")
    held = Held()
    run, bound = lent(field, held, atomic=True)
    first, last = held.page
    assert first <= bound < last
    taken = fields_of(caplog.records, "sweeps.shards.taken")
    assert (taken[0]["shard"], taken[0]["of_shard"]) == (1, 2)
    assert str(bound) in {each["key"] for each in taken}
    assert field.sql("select n, count(*) from things group by n") == [(1, ROWS)]
    assert (first, bound) in held.pages
    shrunk = field.queue_sql("select attempt from {x_jobs} where run_id = %s", [run.run_id])
    assert {attempt for (attempt,) in shrunk} == {1}


@pytest.mark.usefixtures("eager")
def test_a_planned_page_is_never_taken_and_its_handler_not_run_again(field: Field) -> None:
    """N-066, N-087: with `atomic=False` its bounds are stored, and what was done under its key stays done."""
    held = Held()
    _, bound = lent(field, held, atomic=False)
    assert bound >= held.page[1]
    assert field.sql("select n, count(*) from things group by n") == [(1, ROWS)]
    assert sum(last - first + 1 for first, last in held.pages) == ROWS


@pytest.mark.usefixtures("eager")
def test_another_database_is_lent_from_too(field: Field) -> None:
    """N-087, D-1: the bound is found in the source, and moves where the checkpoints are."""
    table(field)
    held = Held()
    sweep = rs.backfill("lend", held, rows=rs.Rows("things"), batch_rows=1_200, adapt=False, shards=2, source=field.dsn)
    run = sweep.launch()
    with field.working(concurrency=2):
        wait_for(held.began)
        until(lambda: len(ranges_of(field, run, "")) > 1, "a part of it taken over")
        held.go.set()
        assert run.wait("30s")["ranges"] >= 3
    assert field.sql("select n, count(*) from things group by n") == [(1, ROWS)]


def test_nothing_is_taken_while_a_shard_waits_for_a_worker(field: Field) -> None:
    """N-087: the worker is better free for that one."""
    table(field)
    run = rs.backfill(
        "wait", rows=rs.Rows("things"), set={"n": "n + 1"}, batch_rows=100, adapt=False, shards=3
    ).launch()
    worker = field.worker(concurrency=1)
    worker.tick()
    assert ranges_of(field, run, "") == [[None, field.steps(run)["sweep:pages:s02"].output["range"][0]]]
    assert field.finish(run)["ranges"] == 3


def test_a_range_that_is_nearly_done_is_not_halved(field: Field) -> None:
    """N-087: less than four batches are not worth the search."""
    table(field)
    held = Held()
    run = rs.backfill("few", held, rows=rs.Rows("things"), batch_rows=1_200, adapt=False, shards=2).launch()
    with field.working(concurrency=2):
        wait_for(held.began)
        until(lambda: field.row(run).shards[0]["status"] == "done", "the end of the first")
        held.go.set()
        assert run.wait("30s")["ranges"] == 2


def test_a_shard_that_was_lent_to_goes_on_after_a_crash(field: Field) -> None:
    """N-087: the range it took over is in its checkpoint, with those behind it."""
    table(field)
    run = rs.backfill(
        "crash", rows=rs.Rows("things"), set={"n": "n + 1"}, batch_rows=100, adapt=False, shards=2
    ).launch()
    field.worker(concurrency=1).tick()
    mine, theirs = (field.steps(run)[name].output for name in ("sweep:pages", "sweep:pages:s02"))
    taken = {**mine, "ended": False, "behind": [mine["range"]], "range": [["2500"], None], "cursor": ["2500"]}
    left = {**theirs, "range": [theirs["range"][0], ["2500"]]}
    for name, value in (("sweep:pages", taken), ("sweep:pages:s02", left)):
        field.queue_sql(
            "update {x_job_steps} set output = %s where run_id = %s and name = %s",
            [_json(value), run.run_id, name],
        )
    totals = field.finish(run)
    assert (totals["rows"], totals["ranges"]) == (ROWS, 3)
    assert field.sql("select n, count(*) from things group by n") == [(1, ROWS)]


def _json(value: Any) -> Any:
    from psycopg.types.json import Json

    return Json(value)


class Timed:
    """A handler whose batches take a moment; it notes how many there were when each shard did its last one."""

    def __init__(self) -> None:
        self.batches = count(1)
        self.last: dict[Any, int] = {}

    def __call__(self, batch: rs.Batch) -> pl.DataFrame:
        assert batch.ctx is not None
        time.sleep(0.01)
        self.last[batch.ctx.job_id] = next(self.batches)
        return batch.frame.select("k", pl.col("n") + 1)


@pytest.mark.parametrize("is_misjudged", [pytest.param(False, marks=pytest.mark.slow), True])
def test_two_shards_of_a_skewed_table_end_together(field: Field, monkeypatch: Any, is_misjudged: bool) -> None:
    """N-087: 90 % of the rows in 10 % of the key space, also where the first bound is the middle of that space."""
    field.sql("create table things (k int primary key, n int not null default 0)")
    field.sql("insert into things select i * 5 from generate_series(1, 18000) i")
    field.sql("insert into things select 90000 + i * 405 from generate_series(1, 2000) i")
    field.sql("analyze things")
    if is_misjudged:
        halves = [KeyRange(after=None, to=("450000",)), KeyRange(after=("450000",), to=None)]
        monkeypatch.setattr(KeySpace, "divide", lambda *_: halves)
    timed = Timed()
    run = rs.backfill("skewed", timed, rows=rs.Rows("things"), batch_rows=200, adapt=False, shards=2).launch()
    with field.working(concurrency=2):
        totals = run.wait("60s")
    assert totals["rows"] == 20_000
    assert len(timed.last) == 2
    assert max(timed.last.values()) < 1.3 * min(timed.last.values())
    assert field.sql("select n, count(*) from things group by n") == [(1, 20_000)]
