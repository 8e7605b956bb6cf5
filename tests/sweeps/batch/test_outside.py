"""`atomic=False`: at least once, never skipped, with a key that a repeated batch keeps."""

from __future__ import annotations

from typing import Any

import polars as pl
import psycopg
import pytest

import rowsweep as rs
from rowsweep.errors import SweepFailed
from rowsweep.jobs.ctx import Ctx
from tests.sweeps.field import NOW, Field

SMALL: dict[str, Any] = {"rows": rs.Rows("orders"), "batch_rows": 4, "adapt": False, "atomic": False}


def test_a_repeated_batch_has_the_same_bounds_and_the_same_key(field: Field) -> None:
    """N-066, N-067, S-187: bounds are stored before the handler runs; rows inserted since belong to its page."""
    field.orders(10)
    field.sql("update orders set id = id * -10; update orders set id = -id")
    calls: list[tuple[int, str, list[int]]] = []

    def handler(batch: rs.Batch) -> None:
        calls.append((batch.index, batch.key, [row["id"] for row in batch.rows]))
        if len(calls) == 2:
            field.sql("insert into orders (id, price, qty) values (55, 1, 1), (85, 1, 1)")
            raise RuntimeError("the effect is made, the checkpoint is not")

    run = rs.backfill("index", handler, retry=NOW, **SMALL).launch()
    field.tick()
    planned = field.steps(run)["sweep:pages"].output
    assert (planned["index"], planned["cursor"], planned["plan"]) == (0, ["40"], {"to": ["80"], "rows": 4})
    assert (field.row(run).rows, field.row(run).batches) == (4, 1)
    totals = field.finish(run)
    assert [index for index, _, _ in calls] == [0, 1, 1, 2]
    assert calls[1][1] == calls[2][1]
    assert len({key for _, key, _ in calls}) == 3
    assert [ids for _, _, ids in calls] == [[10, 20, 30, 40], [50, 60, 70, 80], [50, 55, 60, 70, 80], [85, 90, 100]]
    assert totals["batches"] == 3


def test_the_handler_runs_outside_any_transaction(field: Field) -> None:
    """N-066: its connection is in autocommit mode, an enqueue of it stands alone, its own transactions are its own."""
    field.orders(6)

    @rs.job("follow", tenant="none", input=int, queue="other")
    def follow(ctx: Ctx, first: int) -> None:
        """Follow up."""

    def handler(batch: rs.Batch) -> None:
        status = batch.connection.info.transaction_status
        assert status == psycopg.pq.TransactionStatus.IDLE
        first = batch.rows[0]["id"]
        assert batch.connection.info.transaction_status == status
        follow.enqueue(first)
        with batch.connection.transaction():
            batch.execute("update orders set band = 'seen' where id = %s", [first])
        raise RuntimeError("afterwards")

    run = rs.backfill("index", handler, retry=rs.Retry(attempts=1), **SMALL).launch()
    with pytest.raises(SweepFailed, match="afterwards"):
        field.finish(run)
    assert field.sql("select id from orders where band = 'seen'") == [(1,)]
    assert field.queue_sql("select input from {x_jobs} where name = 'follow'") == [(1,)]
    assert "in batch 0, keys after the beginning up to (4)" in (field.row(run).last_error or "")


def test_a_returned_frame_is_written_together_with_the_checkpoint(field: Field) -> None:
    """N-066: so what the database is told twice is written once."""
    field.orders(10, more=", hits int not null default 0")
    failing = iter([False, True, False, False, False])

    def handler(batch: rs.Batch) -> pl.DataFrame:
        answer = batch.frame.select("id", hits=pl.col("hits") + 1)
        if next(failing):
            raise RuntimeError("once")
        return answer

    totals = field.sweep(rs.backfill("index", handler, retry=NOW, **SMALL))
    assert field.sql("select hits, count(*) from orders group by 1") == [(1, 10)]
    assert (totals["rows"], totals["written"]) == (10, 10)


@pytest.mark.parametrize("form", ["frame", "dicts"])
def test_rows_that_vanish_under_the_handler_are_left_out(field: Field, form: str) -> None:
    """N-064, N-066: what it was given is of its page, though nothing was locked meanwhile."""
    field.orders(10)

    def handler(batch: rs.Batch) -> Any:
        frame, rows = (batch.frame, []) if form == "frame" else (None, batch.rows)
        if batch.index == 1:
            field.sql("delete from orders where id = 6; update orders set qty = 0 where id = 7")
        if frame is not None:
            return frame.select("id", band=pl.lit("x"))
        return [{"id": row["id"], "band": "x"} for row in rows]

    totals = field.sweep(rs.backfill("index", handler, **(SMALL | {"rows": rs.Rows("orders", where="qty > 0")})))
    assert field.sql("select id from orders where band is null") == []
    assert (totals["rows"], totals["written"]) == (10, 9)


@pytest.mark.usefixtures("hasty")
def test_a_passing_error_repeats_the_handler_with_the_same_key(field: Field) -> None:
    """N-066, N-069: the plan stands; the write-back waits for whoever holds the rows."""
    field.orders(10)
    keys: list[str] = []

    def handler(batch: rs.Batch) -> pl.DataFrame:
        keys.append(batch.key)
        if keys.count(batch.key) == 3 and batch.index == 1:
            other.close()
        return batch.frame.select("id", band=pl.lit("x"))

    other = field.other()
    other.execute("begin")
    other.execute("select from orders where id = 6 for update")
    totals = field.sweep(rs.backfill("index", handler, lock_timeout="20ms", **SMALL))
    assert totals["rows"] == 10
    assert keys[0] != keys[1] == keys[2] == keys[3] != keys[4]
    assert len(set(keys)) == len(keys) - keys.count(keys[1]) + 1


@pytest.mark.usefixtures("hasty")
def test_the_size_comes_back_after_a_bad_moment(field: Field) -> None:
    """N-068, N-069: pages that were cut smaller grow again."""
    field.orders(64)
    failing = iter([True, True])
    sizes: list[int] = []

    def handler(batch: rs.Batch) -> None:
        sizes.append(len(batch.rows))
        if batch.index == 1 and next(failing, False):
            raise psycopg.errors.DeadlockDetected("of another database")

    field.sweep(rs.backfill("index", handler, **(SMALL | {"batch_rows": 16})))
    assert sizes[:4] == [16, 16, 16, 16]
    assert sizes[-1] >= 8


def test_a_lost_lease_stores_no_checkpoint(field: Field) -> None:
    """N-060, N-120: nor does it write what the handler returned."""
    field.orders(6)

    def handler(batch: rs.Batch) -> pl.DataFrame:
        field.steal(run)
        return batch.frame.select("id", band=pl.lit("x"))

    run = rs.backfill("index", handler, **SMALL).launch()
    execution = field.tick()
    assert (execution.outcome, getattr(execution.error, "code", None)) == ("interrupted", "X_JOB_LEASE_LOST")
    assert field.one("select count(*) from orders where band is not null") == 0
    assert field.steps(run)["sweep:pages"].output["plan"] == {"to": ["4"], "rows": 4}
