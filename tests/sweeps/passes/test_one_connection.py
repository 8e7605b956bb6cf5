"""Sweeps over a pool of one connection: none holds it while it, or another, asks for one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import polars as pl
import pytest

import rowsweep as rs
from rowsweep.app.connecting import connect
from rowsweep.clock import real_monotonic
from rowsweep.queue.postgres.connections import Connections
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.sweeps.batch.connection import BatchConnection
from tests.sweeps.field import Background, Field, fields_of, until, wait_for

ROWS = 1_000


@pytest.fixture
def narrow(field: Field) -> Iterator[Field]:
    """An app whose role may hold four connections: one is left for all bodies together."""
    field.app.close()
    driver = PostgresDriver(Connections(dsn=field.dsn, wait_seconds=2.0), schema=field.queue)
    driver._pools._role_limit = lambda: 4
    app = connect(driver=driver, work=False, actor="tester", health="off")
    made = Field(app, field.dsn, field.connection, field.queue)
    made.orders(ROWS, more=", due timestamptz default now() - interval '1 day'")
    yield made
    for worker in made.workers:
        worker.stop(deadline_at=real_monotonic() + 5)
    app.close()


def by_set(_: Path) -> Any:
    """A sweep whose batches travel together."""
    return rs.backfill("set", rows=rs.Rows("orders", where="total is null"), set={"total": "price * qty"})


def counting(_: Path) -> Any:
    """One that tells its late rows by a snapshot, where that can be had."""
    return rs.backfill("counting", rows=rs.Rows("orders"), set={"qty": "qty + 1"}, batch_rows=200)


def by_frame(_: Path) -> Any:
    """One whose handler returns a frame, and fails for one row."""

    @rs.backfill("frame", rows=rs.Rows("orders", columns=["id"]), batch_rows=200, on_error="set-aside")
    def banded(batch: rs.Batch) -> pl.DataFrame:
        if 77 in batch.frame["id"]:
            raise ValueError("one of these")
        return batch.frame.select("id", band=pl.lit("b"))

    return banded


def outside(_: Path) -> Any:
    """One whose handler enqueues beside its batch."""

    @rs.job("told", tenant="none", input=str)
    def told(ctx: rs.Ctx, text: str) -> None: ...

    @rs.backfill("outside", rows=rs.Rows("orders", columns=["id"]), batch_rows=200, atomic=False)
    def outside(batch: rs.Batch) -> None:
        assert batch.rows
        told.enqueue(batch.key)

    return outside


def by_shards(_: Path) -> Any:
    """One by several jobs."""
    return rs.backfill("shards", rows=rs.Rows("orders"), set={"band": "'x'"}, shards=3, batch_rows=100)


def exported(folder: Path) -> Any:
    """An export."""
    return rs.export_rows("out", rows=rs.Rows("orders"), to=f"{folder}/out", part_rows=200)


def purged(_: Path) -> Any:
    """A purge of a target of rows and of one that deletes by itself, which enqueues meanwhile."""

    @rs.job("cleared", tenant="none", input=int)
    def cleared(ctx: rs.Ctx, rows: int) -> None: ...

    def other(at: datetime) -> int:
        cleared.enqueue(7)
        return 7

    return rs.purge("purge", targets=lambda: [rs.expired("orders", "due"), other], confirm=1.0, batch_rows=200)


@pytest.mark.parametrize("declare", [by_set, counting, by_frame, outside, by_shards, exported, purged])
def test_a_pass_works_with_the_one_connection_there_is(
    narrow: Field, declare: Callable[[Path], Any], tmp_path: Path
) -> None:
    """N-040: what it asks of the queue between its batches it does not wait for itself for."""
    sweep = declare(tmp_path)
    with narrow.working(concurrency=4):
        run = sweep.launch()
        run.wait("30s")
    assert narrow.queue_sql("select max(attempt) from {x_jobs} where run_id = %s", [run.run_id]) == [(1,)]


@pytest.mark.slow
def test_passes_take_turns_over_the_one_connection_there_is(narrow: Field, tmp_path: Path) -> None:
    """N-040, N-087: several at a time, shards among them, each give it back between batches where others wait."""
    sweeps = [declare(tmp_path) for declare in (counting, by_frame, outside, by_shards, exported)]
    with narrow.working(concurrency=8):
        runs = [sweep.launch() for sweep in sweeps]
        for run in runs:
            run.wait("60s")
    assert narrow.queue_sql("select max(attempt) from {x_jobs} where name = any(%s)", [[s.name for s in sweeps]]) == [
        (1,)
    ]


def test_a_connection_that_others_wait_for_is_given_back_before_the_next_batch(narrow: Field) -> None:
    """N-040: none is taken out of a transaction, and whoever gave it back has its turn behind who waited."""
    held = BatchConnection(narrow.app.driver, None, {})
    turns: list[str] = []

    def ask() -> None:
        with narrow.app.driver.sweep_connection():
            turns.append("other")

    with held.transaction():
        asking = Background(ask)
        until(lambda: held.is_wanted)
        assert turns == []
    with held.transaction():
        turns.append("own")
    asking.result()
    held.release()
    assert turns == ["other", "own"]


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_a_pass_that_finds_no_free_connection_waits_for_one_and_says_so(
    narrow: Field, caplog: pytest.LogCaptureFixture
) -> None:
    """N-069, N-040: for longer than a connection is waited for at once; its batches are no smaller for it."""
    inside = threading.Event()

    @rs.backfill("waits", rows=rs.Rows("orders", columns=["id"]), batch_rows=200, adapt=False)
    def waits(batch: rs.Batch) -> None:
        if batch.index == 1:
            inside.set()
            pool = narrow.app.driver._pools._opened.work._pool  # type: ignore[attr-defined]
            until(lambda: pool.get_stats()["requests_waiting"], "somebody asks")

    run = waits.launch()
    with narrow.working(concurrency=1):
        wait_for(inside)
        with narrow.app.driver.sweep_connection():
            until(lambda: waiting_for(narrow, run.run_id) == "a free connection", "it says so")
        run.wait("30s")
    assert narrow.queue_sql("select max(attempt) from {x_jobs}") == [(1,)]
    assert (run.snapshot().batches, run.snapshot().waiting_for) == (5, None)
    assert fields_of(caplog.records, "sweeps.batch.shrunk") == []


def waiting_for(narrow: Field, run_id: UUID) -> str | None:
    """Read what a run waits for over the test's own connection."""
    ((said,),) = narrow.queue_sql("select waiting_for from {x_backfills} where run_id = %s", [run_id])
    assert said is None or isinstance(said, str)
    return said
