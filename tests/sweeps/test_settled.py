"""`on_settled` of a sweep: told of its totals, or of what it failed with; not of pauses and cancels."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl
import pytest

import rowsweep as rs
from rowsweep.errors import SweepFailed
from rowsweep.jobs import ambient
from tests.sweeps.field import NOW, Field
from tests.sweeps.purge.events import make_events


def test_a_hook_is_told_of_a_backfill_s_totals(field: Field) -> None:
    """D-1, S-415, S-007: what `run.wait()` answers, after the ledger row is done."""
    field.orders(20)
    heard: list[Any] = []

    def hear(settled: rs.Settled[Any, dict[str, Any]]) -> None:
        (row,) = field.queue_sql("select status from {x_backfills} where run_id = %s", [settled.run_id])
        heard.append((settled, row, ambient.enclosing_tenant()))

    totals = rs.backfill(
        "totals",
        rows=rs.Rows("orders"),
        set={"total": "price * qty"},
        input=str,
        tenant=lambda value: f"shop-{value}",
        on_settled=hear,
    )
    answered = field.sweep(totals, "7")
    ((settled, row, tenant),) = heard
    assert (settled.outcome, settled.job, settled.input, row, tenant) == (
        "completed",
        "totals",
        "7",
        ("done",),
        "shop-7",
    )
    assert (settled.result["rows"], answered["rows"]) == (20, 20)


def test_a_hook_is_told_of_a_backfill_that_failed_for_good(field: Field) -> None:
    """D-1, S-415, S-412: once, after its last attempt."""
    field.orders(5)
    heard: list[rs.Settled[Any, Any]] = []

    @rs.backfill("bands", rows=rs.Rows("orders"), retry=NOW, on_settled=heard.append)
    def bands(batch: rs.Batch) -> pl.DataFrame:
        raise ValueError("no band")

    with pytest.raises(SweepFailed):
        field.sweep(bands)
    (settled,) = heard
    assert (settled.outcome, settled.attempt) == ("dead-lettered", 3)
    assert "no band" in (settled.error or "")


def test_a_hook_is_not_told_of_a_pause_or_a_cancel(field: Field) -> None:
    """S-412."""
    field.orders(20)
    heard: list[rs.Settled[Any, Any]] = []
    runs: list[rs.Run] = []

    @rs.backfill("bands", rows=rs.Rows("orders"), batch_rows=5, adapt=False, on_settled=heard.append)
    def bands(batch: rs.Batch) -> None:
        runs[0].pause() if batch.index == 0 else runs[0].cancel()

    runs.append(bands.launch())
    assert field.tick().outcome == "suspended"
    runs[0].resume()
    assert field.tick().outcome == "interrupted"
    assert runs[0].snapshot().status == "cancelled"
    assert heard == []


def test_a_hook_is_told_of_a_purge_s_report(field: Field) -> None:
    """S-007, S-212: the options of a purge are a job's."""
    make_events(field, 30, 70)
    heard: list[rs.Settled[Any, Any]] = []
    target = rs.older_than("events", "created_at", age=timedelta(days=30))
    retention = rs.purge("retention", targets=lambda: [target], confirm=0.5, on_settled=heard.append)
    report = field.finish(retention.launch())
    (settled,) = heard
    assert (settled.outcome, {**report, **(settled.result or {})}) == ("completed", report)
    assert (settled.result or {})["total"] == 30
