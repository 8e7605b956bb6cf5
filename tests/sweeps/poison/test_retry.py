"""Rejected rows are tried again by a run over exactly them; those that are done leave the list."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import rowsweep as rs
from rowsweep.errors import AlreadyApplied, SweepFailed, SweepNotLive, UnknownJob
from rowsweep.jobs.registry import reset_jobs
from rowsweep.sweeps.declare import backfill
from rowsweep.sweeps.keyset.rows import Rows
from rowsweep.sweeps.run import Run
from tests.sweeps.field import NONE_LATE, Field

BAD = (7, 8, 21, 40)


def poisoned(field: Field, rows: int = 60) -> None:
    field.orders(rows)
    field.sql("update orders set qty = 0 where id = any (%s)", [list(BAD)])


def sweep(**options: Any) -> Any:
    reset_jobs()  # declared anew, as a reloaded module does
    given: dict[str, Any] = {"batch_rows": 16, "adapt": False, "on_error": "set-aside"}
    work = {} if "handler" in options else {"set": {"total": "price / qty"}}
    return backfill("totals", options.pop("handler", None), rows=Rows("orders"), **(given | work | options))


def keys(run: Run) -> list[int]:
    return [int(key) for key in run.rejected()["key"]]


def test_a_retry_goes_over_exactly_the_listed_rows_and_those_done_leave_the_list(field: Field) -> None:
    """N-086: others are not touched, not even where they match again."""
    poisoned(field)
    run = sweep().launch()
    field.finish(run)
    field.sql("update orders set qty = 2 where id in (7, 40); update orders set total = null where id = 1")
    again = run.retry_rejected()
    assert not again.attached
    totals = field.finish(again)
    assert totals == {"rows": 2, "written": 2, "batches": 1, "rejected": 2, "remaining": None, "late": NONE_LATE}
    assert field.one("select total from orders where id = 1") is None
    assert keys(run) == keys(again) == [8, 21]
    field.sql("update orders set qty = 1 where qty = 0")
    assert field.finish(again.retry_rejected())["rows"] == 2
    assert keys(run) == keys(again) == []
    assert field.one("select count(*) from orders where total is null") == 1


def test_rows_that_are_gone_or_no_longer_match_leave_the_list_too(field: Field) -> None:
    """N-086: nothing is left to be done about them."""
    poisoned(field)
    run = backfill(
        "totals", rows=Rows("orders", where="total is null"), set={"total": "price / qty"}, on_error="set-aside"
    ).launch()
    field.finish(run)
    field.sql("delete from orders where id = 7; update orders set total = 5 where id = 8")
    assert field.finish(run.retry_rejected())["rejected"] == 2
    assert keys(run) == [21, 40]


@pytest.mark.parametrize("atomic", [True, False])
def test_handlers_retry_with_what_they_are_now(field: Field, atomic: bool) -> None:
    """N-086: the mended code runs, over the rows that failed alone, in pages of the declared size."""
    field.orders(60)
    pages: list[list[int]] = []

    def broken(batch: rs.Batch) -> pl.DataFrame:
        if set(BAD) & set(batch.frame["id"]):
            raise ValueError("no")
        return batch.frame.select("id", band=pl.lit("low"))

    def mended(batch: rs.Batch) -> pl.DataFrame:
        pages.append(batch.frame["id"].to_list())
        return batch.frame.select("id", band=pl.lit("high"))

    run = sweep(handler=broken, atomic=atomic).launch()
    field.finish(run)
    assert keys(run) == list(BAD)
    sweep(handler=mended, atomic=atomic, batch_rows=3)
    assert field.finish(run.retry_rejected())["rows"] == 4
    assert pages == [[7, 8, 21], [40]]
    assert keys(run) == []
    assert field.sql("select band, count(*) from orders group by 1 order by 1") == [("high", 4), ("low", 56)]


def test_a_retry_that_loses_its_claim_takes_nothing_off_the_list(field: Field) -> None:
    """N-060, N-086: the lists move in the batch's transaction; the next attempt does what is left."""
    field.orders(60)
    thieves: list[Run] = []

    def handler(batch: rs.Batch) -> None:
        if thieves and batch.index == 1:
            field.steal(thieves.pop())
        batch.execute("update orders set total = price / qty where id = any (%s)", [[row["id"] for row in batch.rows]])

    field.sql("update orders set qty = 0 where id = any (%s)", [list(BAD)])
    run = sweep(handler=handler, batch_rows=3).launch()
    field.finish(run)
    field.sql("update orders set qty = 1 where qty = 0")
    again = run.retry_rejected()
    thieves.append(again)
    field.tick()
    assert keys(run) == [40]
    field.queue_sql(
        "update {x_jobs} set state = 'ready', claimed_by = null, visible_at = null, run_at = now() where run_id = %s",
        [again.run_id],
    )
    assert field.finish(again)["rows"] == 4
    assert keys(run) == []


def test_a_retry_is_no_application_of_the_sweep(field: Field) -> None:
    """N-086, D-4: of a run that failed only its rejected rows are done then; the sweep itself is not."""
    poisoned(field)
    run = sweep(max_rejected=2).launch()
    with pytest.raises(SweepFailed):
        field.finish(run)
    assert keys(run) == [7, 8]
    field.sql("update orders set qty = 1 where qty = 0")
    retry = run.retry_rejected()
    field.finish(retry)
    assert keys(run) == []
    follow = backfill("follow", rows=Rows("orders"), set={"band": "'x'"}, requires=("totals",))
    with pytest.raises(rs.errors.RequirementMissing):
        follow.launch()
    whole = sweep().launch()
    assert (whole.attached, field.finish(whole)["rows"]) == (False, 60)
    with pytest.raises(AlreadyApplied):
        sweep().launch()


def test_a_run_that_failed_is_resumed_beside_its_retry(field: Field) -> None:
    """N-073, N-086: they exclude each other by their key; what each of them does or finds is in the one list."""
    poisoned(field)
    run = sweep(max_rejected=2).launch()
    with pytest.raises(SweepFailed):
        field.finish(run)
    retry = run.retry_rejected()
    assert run.retry_rejected().run_id == retry.run_id
    assert run.retry_rejected().attached
    field.sql("update orders set qty = 1 where id in (8, 21)")
    run.resume()
    assert field.job(run).concurrency_key == field.job(retry).concurrency_key is not None
    assert field.finish(run)["rows"] == 57
    field.finish(retry)
    assert (keys(run), keys(retry)) == ([7, 40], [7])
    assert field.one("select count(*) from orders where total is not null") == 58


def test_without_rejected_rows_there_is_nothing_to_retry(field: Field) -> None:
    """N-086."""
    field.orders(5)
    run = sweep().launch()
    field.finish(run)
    with pytest.raises(SweepNotLive, match="nothing to try again"):
        run.retry_rejected()
    assert run.rejected().height == 0


def test_a_sweep_that_is_not_declared_here_cannot_retry(field: Field) -> None:
    """N-086: but its list can be read."""
    poisoned(field)
    run = sweep().launch()
    field.finish(run)
    reset_jobs()
    with pytest.raises(UnknownJob):
        run.retry_rejected()
    assert keys(run) == list(BAD)


def test_rows_of_another_table_are_never_taken_for_these(field: Field) -> None:
    """N-086, N-071: a sweep that goes over another table or key by now retries nothing."""
    poisoned(field)
    run = sweep().launch()
    field.finish(run)
    field.sql("create table others (id bigint primary key, price int, qty int, total int)")
    reset_jobs()
    backfill("totals", rows=Rows("others"), set={"total": "price / qty"}, on_error="set-aside")
    with pytest.raises(SweepFailed, match="The table of 'totals' changed") as failed:
        field.finish(run.retry_rejected())
    assert failed.value.meta["code"] == "X_BACKFILL_CHANGED"
    assert keys(run) == list(BAD)
