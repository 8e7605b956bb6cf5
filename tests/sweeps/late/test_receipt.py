"""The receipt of a run says what still matches, in one snapshot, and what it cannot tell."""

from __future__ import annotations

import re
from typing import Any

import polars as pl
import pytest

import rowsweep as rs
from rowsweep.errors import (
    AlreadyApplied,
    ChangedSinceApplied,
    InvalidOption,
    InvalidSweepSql,
    SweepNotFound,
    TimedOut,
    UnknownSource,
)
from tests.sweeps.field import Field
from tests.sweeps.late.test_look import INSERT, orders_without, totals_sweep, writing


def test_a_run_that_left_nothing_is_complete(field: Field) -> None:
    """N-057: predicate, rows, ranges, snapshot, instant."""
    field.orders(20)
    run = totals_sweep().launch()
    field.finish(run)
    receipt = run.verify()
    assert (receipt.is_complete, receipt.fix) == (True, "")
    assert (receipt.where, receipt.rows, receipt.matching, receipt.due) == ("total is null", 20, 0, 0)
    assert (receipt.covered, receipt.writers, receipt.rejected) == (((None, None),), 0, 0)
    assert receipt.snapshot.count(":") == 2
    assert receipt.at.utcoffset() is not None
    assert receipt.as_json()["is_complete"] is True
    assert "complete. Due: 0; matching: 0." in receipt.words
    assert str(receipt) == receipt.words


def test_rows_of_a_transaction_that_outlived_the_wait_are_found(field: Field) -> None:
    """N-057: while it is open the receipt says so, behind it the row is due."""
    orders_without(field, 3)
    with writing(field, INSERT) as writer:
        run = totals_sweep(late_wait="0s").launch()
        assert field.finish(run)["late"]["writers"] == 1
        receipt = run.verify()
        assert (receipt.is_complete, receipt.writers, receipt.due) == (False, 1, 0)
        assert "1 open transaction unseen" in receipt.words
        assert receipt.fix.startswith("ask again when these transactions have ended")
        writer.commit()
    receipt = run.verify()
    assert (receipt.is_complete, receipt.matching, receipt.due, receipt.writers) == (False, 1, 1, 0)
    assert receipt.fix == "rowsweep run totals --force, which sweeps what matches now"


def test_rows_that_match_and_would_not_change_are_not_due(field: Field) -> None:
    """N-057: a total of no price stays null."""
    field.orders(20)
    field.sql("alter table orders alter price drop not null; update orders set price = null where id > 18")
    run = totals_sweep().launch()
    field.finish(run)
    receipt = run.verify()
    assert (receipt.is_complete, receipt.matching, receipt.due) == (True, 2, 0)


def test_what_cannot_be_told_is_not_claimed(field: Field) -> None:
    """N-057: a condition that holds behind the sweep, or none, proves nothing."""
    field.orders(8)

    @rs.backfill("bands", rows=rs.Rows("orders", where="price > 0"), batch_rows=4, adapt=False)
    def bands(batch: rs.Batch) -> pl.DataFrame:
        return batch.frame.select("id", band=pl.lit("low"))

    run = bands.launch()
    field.finish(run)
    receipt = run.verify()
    assert (receipt.is_complete, receipt.matching, receipt.due) == (None, 8, None)
    assert "cannot be told" in receipt.words


def test_a_used_up_condition_of_a_handler_is_a_proof(field: Field) -> None:
    """N-057: whatever matches now became due behind the sweep."""
    field.orders(8)

    @rs.backfill("bands", rows=rs.Rows("orders", where="band is null"), batch_rows=4, adapt=False)
    def bands(batch: rs.Batch) -> pl.DataFrame:
        return batch.frame.select("id", band=pl.lit("low"))

    run = bands.launch()
    field.finish(run)
    assert run.verify().is_complete is True
    field.sql("update orders set band = null where id = 4")
    assert (run.verify().is_complete, run.verify().due) == (False, 1)


def test_nothing_is_claimed_of_batches_that_nobody_looked_behind(field: Field) -> None:
    """N-057: late="report" saves the look, and with it the proof; a later attempt cannot make up for it."""
    field.orders(8)

    def declare(late: Any) -> Any:
        @rs.backfill("bands", rows=rs.Rows("orders", where="band is null"), batch_rows=4, adapt=False, late=late)
        def bands(batch: rs.Batch) -> pl.DataFrame:
            if batch.index == 1 and late == "report":
                run.pause()
            return batch.frame.select("id", band=pl.lit("low"))

        return bands

    run = declare("report").launch()
    field.tick()
    declare("due")
    run.resume()
    field.finish(run)
    assert run.verify().is_complete is True
    field.sql("update orders set band = null where id = 4")
    receipt = run.verify()
    assert (receipt.is_complete, receipt.matching, receipt.due) == (None, 1, None)


def test_a_run_under_way_is_not_complete_and_says_how_far_it_is(field: Field) -> None:
    """N-057: the ranges that it has gone over."""
    field.orders(20)

    @rs.backfill("bands", rows=rs.Rows("orders", where="band is null"), batch_rows=4, adapt=False)
    def bands(batch: rs.Batch) -> pl.DataFrame:
        if batch.index == 2:
            run.pause()
        return batch.frame.select("id", band=pl.lit("low"))

    run = bands.launch()
    with pytest.raises(SweepNotFound, match="has not begun"):
        run.verify()
    field.tick()
    receipt = run.verify()
    assert (receipt.is_complete, receipt.status, receipt.covered) == (False, "paused", ((None, ("12",)),))
    assert (receipt.rows, receipt.matching, receipt.due) == (12, 8, 8)


def test_an_export_is_counted_and_a_purge_refused(field: Field, tmp_path: object) -> None:
    """N-057: an export does not look again; its receipt has both figures."""
    field.orders(8)
    run = rs.export_rows("out", rows=rs.Rows("orders"), to=f"{tmp_path}/out").launch()
    field.finish(run)
    receipt = run.verify()
    assert (receipt.is_complete, receipt.rows, receipt.matching, receipt.due) == (None, 8, 8, None)
    field.sql("create table events (id int primary key, at timestamptz); create index on events (at)")
    purge = rs.purge("old", targets=lambda: [rs.older_than("events", "at", days=1)]).launch()
    field.finish(purge)
    with pytest.raises(InvalidOption, match="is a purge"):
        purge.verify()


@pytest.mark.slow
def test_another_condition_than_the_run_had_is_refused_and_a_long_count_given_up(field: Field) -> None:
    """N-057, N-071."""
    field.orders(8)
    run = totals_sweep(where="total is null and pg_sleep(0.0) is not null").launch()
    field.finish(run)
    field.sql("update orders set total = null")
    totals = rs.Rows("orders", where="total is null and pg_sleep(0.2) is not null")
    _declare_again(totals)
    with pytest.raises(ChangedSinceApplied, match="where"):
        run.verify()
    slow = _declare_again(totals).launch(force=True)
    field.finish(slow)
    field.sql("update orders set total = null")
    with pytest.raises(TimedOut, match=r"longer than 0\.1 s"):
        slow.verify(timeout="100ms")


def _declare_again(rows: rs.Rows) -> rs.Sweep[object]:
    from rowsweep.jobs.registry import reset_jobs

    reset_jobs()
    return rs.backfill("totals", rows=rows, set={"total": "price * qty"}, batch_rows=4, adapt=False)


@pytest.mark.parametrize("where", ["total is null", None])
def test_an_expression_that_fails_for_rows_is_asked_of_none_of_those_set_aside(field: Field, where: str | None) -> None:
    """N-084, N-057: they are due still; where it fails for another row, what is due cannot be told."""
    field.orders(20)
    field.sql("update orders set qty = 0 where id in (5, 12)")
    given: dict[str, Any] = {"set": {"total": "price / qty"}, "on_error": "set-aside"}
    run = totals_sweep(where, **given).launch()
    field.finish(run)
    receipt = run.verify()
    assert (receipt.is_complete, receipt.matching, receipt.due) == (False, 20 if where is None else 2, 2)
    assert f"rowsweep sweeps retry-rejected {run.run_id}" in receipt.fix
    field.sql("insert into orders values (30, 1, 0)")
    assert run.verify().due is None
    field.sql("update orders set qty = 1 where qty = 0; update orders set total = price")
    field.finish(run.retry_rejected())
    assert run.verify().is_complete is (where is not None)


def test_a_table_that_is_gone_and_a_condition_that_fails_are_said(field: Field) -> None:
    """N-050, N-049: as a launch would say it."""
    field.orders(20)
    run = totals_sweep("10 / qty > 0").launch()
    field.finish(run)
    field.sql("insert into orders values (30, 1, 0)")
    with pytest.raises(InvalidSweepSql, match=r"where fails for a row of .*orders\. Postgres says: division by zero"):
        run.verify()
    field.sql("drop table orders")
    with pytest.raises(UnknownSource, match="orders"):
        run.verify()


def test_a_handle_answers_for_its_last_run_that_is_done(field: Field) -> None:
    """N-057: with that input; before there is one it is said that there is none."""
    field.orders(20)
    sweep = totals_sweep()
    with pytest.raises(SweepNotFound, match="No run of 'totals' with this input is done"):
        sweep.verify()
    first = sweep.launch()
    field.finish(first)
    field.sql("update orders set total = null where id = 4")
    assert (sweep.verify().run_id, sweep.verify(timeout="1m").due) == (str(first.run_id), 1)
    second = sweep.launch(force=True)
    assert sweep.verify().run_id == str(first.run_id)
    field.finish(second)
    assert (sweep.verify().run_id, sweep.verify().is_complete) == (str(second.run_id), True)


def test_a_run_over_rejected_rows_answers_for_the_one_that_left_them(field: Field) -> None:
    """N-084, N-057: under the sweep's name too, whose newest run it is, and on the handle."""
    field.orders(20)
    field.sql("update orders set qty = 0 where id in (5, 12)")
    sweep = totals_sweep(set={"total": "price / qty"}, on_error="set-aside")
    run = sweep.launch()
    field.finish(run)
    field.sql("update orders set qty = 1 where id = 5")
    first = run.retry_rejected()
    field.finish(first)
    field.sql("update orders set qty = 1 where id = 12")
    second = first.retry_rejected()
    field.finish(second)
    receipts = [rs.attach("totals").verify(), second.verify(), run.verify(), sweep.verify()]
    assert {(receipt.run_id, receipt.is_complete, receipt.rejected) for receipt in receipts} == {
        (str(run.run_id), True, 0)
    }
    field.queue_sql("delete from {x_backfills} where run_id = %s", [run.run_id])
    with pytest.raises(SweepNotFound, match=f"tries rows of run {run.run_id} again"):
        second.verify()


def test_an_applied_sweep_names_the_way_on_for_rows_that_it_set_aside(field: Field) -> None:
    """D-4, N-084: they are tried again, not the whole table; where that is asked for already, by whom it waits."""
    field.orders(20)
    field.sql("update orders set qty = 0 where id = 5")
    sweep = totals_sweep(set={"total": "price / qty"}, on_error="set-aside")
    run = sweep.launch()
    field.finish(run)
    with pytest.raises(AlreadyApplied) as refused:
        sweep.launch()
    assert refused.value.fix.startswith(f"rowsweep sweeps retry-rejected {run.run_id} does the row that it set aside; ")
    retry = run.retry_rejected()
    with pytest.raises(AlreadyApplied) as refused:
        sweep.launch()
    assert refused.value.fix.startswith(
        f"run {retry.run_id} tries the rows again that it set aside; a worker does them"
    )
    retry.pause()
    with pytest.raises(AlreadyApplied) as refused:
        sweep.launch()
    assert refused.value.fix.endswith(f"rowsweep sweeps resume {retry.run_id}")
    retry.resume()
    field.sql("update orders set qty = 1 where id = 5")
    field.finish(retry)
    with pytest.raises(AlreadyApplied) as refused:
        sweep.launch()
    assert refused.value.fix.startswith("rowsweep ledger --name totals; launch(force=True)")


def test_a_receipt_has_a_page_for_notebooks(field: Field) -> None:
    """N-057, N-104: in the app's own look, every value escaped; its text where nothing is connected."""
    field.orders(20)
    run = totals_sweep("total is null and qty < 100").launch()
    field.finish(run)
    receipt = run.verify()
    page = receipt._repr_html_()
    assert page is not None
    assert "total is null and qty &lt; 100" in page
    assert 'class="rowsweep"' in page
    assert re.search(r"complete</span> <small>on \w+\.orders", page)
    field.app.close()
    assert receipt._repr_html_() is None
