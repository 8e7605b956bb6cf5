"""Several jobs of one run set rows aside into one list."""

from __future__ import annotations

from typing import Any

import pytest

import rowsweep as rs
from rowsweep.sweeps.declare import backfill
from rowsweep.sweeps.keyset.rows import Rows
from tests.sweeps.field import Field

BAD = (7, 1_500, 2_999)


@pytest.mark.parametrize("atomic", [True, False])
def test_shards_fill_one_list_and_a_retry_of_it_is_one_job(field: Field, atomic: bool) -> None:
    """N-084, N-086, N-088: each bad row once, `rows` and `rejected` of the run are those of all its jobs."""
    field.orders(3_000)
    field.sql("update orders set qty = 0 where id = any (%s)", [list(BAD)])
    field.sql("analyze orders")

    def handler(batch: rs.Batch) -> None:
        ids = [row["id"] for row in batch.rows]
        batch.execute("update orders set total = price / qty where id = any (%s)", [ids])

    options: dict[str, Any] = {"batch_rows": 100, "adapt": False, "on_error": "set-aside", "shards": 3}
    run = backfill("totals", handler, rows=Rows("orders", columns=["id"]), atomic=atomic, **options).launch()
    totals = field.finish(run)
    assert (totals["rows"], totals["rejected"], totals["shards"]) == (2_997, 3, 3)
    assert sorted(int(key) for key in run.rejected()["key"]) == list(BAD)
    assert [row[0] for row in field.sql("select id from orders where total is null order by id")] == list(BAD)
    field.sql("update orders set qty = 1 where qty = 0")
    again = run.retry_rejected()
    assert field.finish(again)["rows"] == 3
    assert field.queue_sql("select count(*) from {x_jobs} where run_id = %s", [again.run_id]) == [(1,)]
    assert run.rejected().height == 0
