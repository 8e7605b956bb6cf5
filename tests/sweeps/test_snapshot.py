"""What a snapshot says of figures that are getting old."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import rowsweep as rs
from tests.sweeps.field import Background, Field, wait_for


@pytest.mark.parametrize(
    ("state", "is_told"),
    [
        ("updated_at = now() - interval '12 seconds'", True),
        ("updated_at = now() - interval '3 seconds'", False),
        ("updated_at = now() - interval '12 seconds', active_seconds = 5 * batches", False),
        ("updated_at = now() - interval '12 seconds', waiting_for = 'rate'", False),
        ("updated_at = now() - interval '12 seconds', wanted = 'cancel'", False),
    ],
)
def test_a_run_whose_batches_stay_away_longer_than_they_take_says_how_old_its_figures_are(
    field: Field, state: str, is_told: bool
) -> None:
    """N-074: a lease outlasts a killed worker by half a minute; three batches' time, and 5 s, are no news."""
    reached, go_on = threading.Event(), threading.Event()

    def handler(batch: rs.Batch) -> Any:
        if batch.index == 2:
            reached.set()
            wait_for(go_on)
        return [{"id": row["id"], "band": "x"} for row in batch.rows]

    field.orders(20)
    run = rs.backfill("count", handler, rows=rs.Rows("orders"), batch_rows=4, adapt=False).launch()
    sweeping = Background(field.tick)
    try:
        wait_for(reached)
        assert run.snapshot().quiet_seconds is None
        field.queue_sql(f"update {{x_backfills}} set {state} where run_id = %s", [run.run_id])
        quiet = run.snapshot().quiet_seconds
        assert (quiet is not None and 12 <= quiet < 20) if is_told else quiet is None
    finally:
        go_on.set()
        sweeping.result()


def test_of_nothing_to_do_no_percentage_is_told(field: Field) -> None:
    """N-076: more than was estimated is told as "at least"; a run over no rows has no more than that."""
    field.orders(20)
    run = rs.backfill("count", rows=rs.Rows("orders"), set={"band": "'x'"}).launch()
    for rows, total_is, percent in [(0, "estimate", None), (1, "at least", 99.0)]:
        figures = f"status = 'running', estimated_rows = 0, rows = {rows}"
        field.queue_sql(f"update {{x_backfills}} set {figures} where run_id = %s", [run.run_id])
        snapshot = run.snapshot()
        assert (snapshot.total, snapshot.total_is, snapshot.percent) == (rows, total_is, percent)
