"""A million rows of which thirty-seven are poisoned, counted."""

from __future__ import annotations

import random
from math import log2

import pytest

from rowsweep.sweeps.declare import backfill
from rowsweep.sweeps.keyset.rows import Rows
from tests.sweeps.field import Field

ROWS, POISONED, BATCH = 1_000_000, 37, 1_000


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_exactly_the_poisoned_rows_of_a_million_are_listed_and_all_others_done(
    field: Field, savepoints: list[str]
) -> None:
    """N-084, N-086: at a bounded price in savepoints, and with all of them done once they are mended."""
    bad = sorted(random.Random(37).sample(range(1, ROWS + 1), POISONED))
    field.orders(ROWS)
    field.sql("update orders set qty = 0 where id = any (%s)", [bad])
    field.sql("analyze orders")
    totals = backfill(
        "totals", rows=Rows("orders"), set={"total": "price / qty"}, batch_rows=BATCH, adapt=False, on_error="set-aside"
    )
    run = totals.launch()
    result = field.finish(run)
    assert (result["rows"], result["written"], result["rejected"]) == (ROWS - POISONED, ROWS - POISONED, POISONED)
    assert [int(key) for key in run.rejected()["key"]] == bad
    assert [row[0] for row in field.sql("select id from orders where total is null order by id")] == bad
    assert len(savepoints) <= POISONED * 2 * log2(BATCH)
    field.sql("update orders set qty = 1 where qty = 0")
    assert field.finish(run.retry_rejected())["rows"] == POISONED
    assert (run.rejected().height, field.one("select count(*) from orders where total is null")) == (0, 0)
