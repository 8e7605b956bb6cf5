"""Expressions that fail: asked of no row that the condition leaves out; for a late row they fail in its batch."""

from __future__ import annotations

from typing import Any

import pytest

from rowsweep.errors import SweepFailed
from tests.sweeps.field import Background, Field, until
from tests.sweeps.late.test_look import INSERT, ONE_LATE, orders_without, totals_sweep, waits_for_writers, writing


def dear_condition(field: Field) -> str:
    """Make `qty > 0` a condition that the planner asks last."""
    field.sql("create function dear(qty int) returns bool language plpgsql cost 10000 as 'begin return qty > 0; end'")
    field.sql("update orders set qty = 0 where id in (5, 6); alter table orders alter total type numeric")
    return "dear(qty) and total is null"


@pytest.mark.slow
def test_an_expression_that_fails_is_asked_of_no_row_that_the_condition_leaves_out(field: Field) -> None:
    """N-057: whatever the planner asks first, in a second look and in a receipt."""
    orders_without(field, 3)
    run = totals_sweep(where=dear_condition(field), set={"total": "price / qty"}).launch()
    with writing(field, INSERT) as writer:
        sweeping = Background(lambda: field.finish(run))
        until(waits_for_writers(field, run))
        writer.commit()
        assert sweeping.result()["late"] == ONE_LATE
    field.sql("update orders set total = null where id = 7")
    assert (run.verify().due, run.verify().matching) == (1, 1)


@pytest.mark.parametrize("on_error", ["stop", "set-aside"])
def test_a_late_row_for_which_an_expression_fails_fails_in_its_batch(field: Field, on_error: Any) -> None:
    """N-057, N-084: as any row does."""
    orders_without(field, 3)
    sweep = totals_sweep(where=dear_condition(field), set={"total": "price / (qty - 9)"}, on_error=on_error)
    run = sweep.launch()
    with writing(field, "insert into orders (id, price, qty) values (3, 1, 1), (30, 1, 9)") as writer:
        sweeping = Background(lambda: field.finish(run))
        until(waits_for_writers(field, run))
        writer.commit()
        if on_error == "stop":
            with pytest.raises(SweepFailed, match="division by zero"):
                sweeping.result()
        else:
            totals = sweeping.result()
            assert (totals["rows"], totals["rejected"], totals["late"]["rows"]) == (18, 1, 1)
            assert run.rejected()["key"].to_list() == ["30"]
    assert field.one("select total is not null from orders where id = 3")
