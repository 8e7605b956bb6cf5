"""A bug in a handler sets no whole table aside: the limit, and the share of rows that fail."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

import rowsweep as rs
from rowsweep.errors import InvalidOption, SweepFailed, TooManyRejected
from rowsweep.queue.stores.rejected import RejectedRow
from rowsweep.sweeps.declare import backfill
from rowsweep.sweeps.export.declare import export_rows
from rowsweep.sweeps.keyset.rows import Rows
from rowsweep.sweeps.poison.limits import Limits
from rowsweep.sweeps.purge.declare import purge
from tests.sweeps.field import Field

FIXED: dict[str, Any] = {"batch_rows": 100, "adapt": False, "on_error": "set-aside"}


def failing(field: Field, condition: str, rows: int = 1_000) -> None:
    field.orders(rows)
    field.sql(f"update orders set qty = 0 where {condition}")


def sweep(**options: Any) -> Any:
    return backfill("totals", rows=Rows("orders"), set={"total": "price / qty"}, **(FIXED | options))


def test_one_row_more_than_the_limit_fails_the_run_and_its_batch_rolls_back(field: Field) -> None:
    """N-085: at once, whatever attempts are left; what was listed before stays."""
    failing(field, "id % 100 in (10, 20)")
    run = sweep(max_rejected=5).launch()
    with pytest.raises(SweepFailed, match="max_rejected=5") as failed:
        field.finish(run)
    assert failed.value.meta["code"] == "X_SWEEP_REJECTED_LIMIT"
    assert "id=220: DivisionByZero" in str(failed.value)
    assert run.rejected()["key"].to_list() == ["10", "20", "110", "120", "210", "220"][:4]
    assert field.one("select max(id) from orders where total is not null") == 200
    assert field.job(run).attempt == 1


def test_the_limit_is_of_the_whole_list_whoever_filled_it(field: Field) -> None:
    """N-085, N-088: the jobs of one run share it."""
    field.orders(100)
    run: Any = None

    def handler(batch: rs.Batch) -> None:
        if batch.index == 0 and len(batch.rows) == 100:
            others = [RejectedRow(table="-", key={"id": str(-number)}, error="no") for number in range(5)]
            store = field.app.stores().rejected
            assert store is not None
            store.add(run.run_id, others)
        if any(row["id"] == 7 for row in batch.rows):
            raise ValueError("no")

    run = backfill("totals", handler, rows=Rows("orders", columns=["id"]), max_rejected=5, **FIXED).launch()
    with pytest.raises(SweepFailed, match=r"max_rejected=5\. The last one, id=7: ValueError: no"):
        field.finish(run)
    assert run.snapshot().rejected_rows == 5


def test_a_third_of_the_rows_failing_stops_it_within_two_batches(field: Field) -> None:
    """N-085: it says so, and sets nothing aside."""
    failing(field, "id % 10 < 3")
    run = sweep().launch()
    with pytest.raises(SweepFailed, match="more than 25%: that looks like a bug") as failed:
        field.finish(run)
    assert failed.value.meta["code"] == "X_SWEEP_REJECTED_LIMIT"
    assert field.row(run).batches == 0
    assert run.rejected().height == 0


def test_a_run_that_was_stopped_goes_on_once_the_rows_are_mended(field: Field) -> None:
    """N-082, N-085: from its checkpoint, with what it had listed."""
    failing(field, "id % 100 = 10 or id between 501 and 550")
    run = sweep(max_rejected=20).launch()
    with pytest.raises(SweepFailed):
        field.finish(run)
    assert run.rejected()["key"].to_list() == ["10", "110", "210", "310", "410"]
    field.sql("update orders set qty = 1 where id between 501 and 550")
    run.resume()
    totals = field.finish(run)
    assert (totals["rows"], totals["rejected"]) == (991, 9)


def test_few_rows_say_nothing_about_a_share(field: Field) -> None:
    """N-085: of a table of forty rows a half may be set aside."""
    failing(field, "id % 2 = 0", rows=40)
    assert field.sweep(sweep())["rejected"] == 20


def limits(**given: Any) -> Limits:
    fixed: dict[str, Any] = {"sweep": "totals", "run_id": UUID(int=1), "most": 1_000, "seen": 0, "rejected": 0}
    return Limits(**(fixed | given))


def test_the_share_is_of_all_the_run_has_seen_from_fifty_rows_on() -> None:
    """N-085: a quarter is not more than a quarter."""
    limits().check(49, rows=49, said="-")
    limits().check(25, rows=100, said="-")
    limits(seen=900, rejected=200).check(50, rows=100, said="-")
    for given, found in ((limits(), 26), (limits(seen=900, rejected=200), 51)):
        with pytest.raises(TooManyRejected, match="fail by themselves"):
            given.check(found, rows=100, said="id=7: no")
    limits(most_share=None).check(100, rows=100, said="-")
    ran = limits()
    ran.done(rows=900, rejected=100)
    with pytest.raises(TooManyRejected, match="275 of 1,099"):
        ran.check(175, rows=99, said="-")


@pytest.mark.parametrize("option", [{"on_error": "skip"}, {"max_rejected": 0}, {"max_rejected": 10_001}])
def test_options_that_say_nothing_are_refused(option: dict[str, Any]) -> None:
    """D-1."""
    with pytest.raises((InvalidOption, rs.errors.InvalidDeclaration), match=next(iter(option))):
        sweep(**option)


def test_a_limit_to_what_nobody_sets_aside_is_refused(field: Field) -> None:
    """D-1: in a declaration and at a launch, with what makes it count."""
    stopping: dict[str, Any] = {"set": {"band": "'x'"}, "rows": Rows("orders"), "max_rejected": 5}
    with pytest.raises(rs.errors.InvalidDeclaration, match='given with on_error="set-aside"'):
        rs.backfill("totals", **stopping)
    field.orders(1)
    totals = sweep(on_error="stop")
    for given in ({"max_rejected": 5}, {"max_rejected": 5, "on_error": "stop"}):
        with pytest.raises(InvalidOption, match="stops at the first one") as refused:
            totals.launch(**given)
        assert "--on-error set-aside" in refused.value.fix
    assert totals.launch(max_rejected=5, on_error="set-aside").snapshot().options["max_rejected"] == 5


def test_a_launch_may_say_it_in_the_declaration_s_place_and_a_resumed_run_keeps_to_it(field: Field) -> None:
    """N-083, N-085: kept with the run."""
    failing(field, "id % 100 = 10", rows=400)
    totals = sweep(on_error="stop")
    run = totals.launch(on_error="set-aside", max_rejected=2)
    with pytest.raises(SweepFailed, match="max_rejected=2"):
        field.finish(run)
    assert run.snapshot().options == {"on_error": "set-aside", "max_rejected": 2}
    field.sql("update orders set qty = 1 where id = 210")
    run.resume()
    with pytest.raises(SweepFailed, match="id=310"):
        field.finish(run)
    assert run.rejected()["key"].to_list() == ["10", "110"]
    with pytest.raises(InvalidOption, match="max_rejected"):
        totals.launch(max_rejected=0)


def test_an_export_and_a_purge_take_no_such_option(field: Field) -> None:
    """D-1: an export leaves out no row, a purge reports the rows it could not remove."""
    field.orders(1)
    for other in (export_rows("out", rows=Rows("orders"), to="/nowhere"), purge("gone", targets=list)):
        with pytest.raises(InvalidOption, match="on_error is an option of backfills"):
            other.launch(on_error="set-aside")
    given: Any = {"on_error": "set-aside"}
    with pytest.raises(rs.errors.InvalidDeclaration, match="on_error"):
        export_rows("out", rows=Rows("orders"), to="/nowhere", **given)
    with pytest.raises(rs.errors.InvalidDeclaration, match="on_error"):
        purge("gone", targets=list, **given)
