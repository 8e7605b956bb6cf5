"""Late rows that cannot be told from done ones: counted, or done by a sweep that may repeat."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pytest

import rowsweep as rs
from tests.sweeps.field import Field
from tests.sweeps.late.test_look import (
    INSERT,
    ONE_LATE,
    UNSWEPT,
    orders_without,
    swept_while_open,
    totals_sweep,
    writing,
)


@pytest.mark.parametrize("late", ["due", "again"])
def test_without_a_condition_rows_that_were_there_are_counted_unless_they_may_be_done_again(
    field: Field, late: str
) -> None:
    """N-060, N-057: late="again" says that doing a row twice does no harm."""
    orders_without(field, 3)
    with writing(field, INSERT) as writer:

        def end() -> None:
            writer.execute("update orders set qty = 9 where id = 2")
            writer.commit()

        totals = swept_while_open(field, totals_sweep(where=None, late=late), end)
    is_again = late == "again"
    assert totals["late"] == {"rows": 1 + is_again, "writers": 0, "unsure": 1 - is_again, "proved": is_again}
    assert field.sql(UNSWEPT) == ([] if is_again else [(2,)])


def test_report_sweeps_nothing_again(field: Field) -> None:
    """N-057: late="report" only counts."""
    orders_without(field, 3)
    with writing(field, INSERT) as writer:
        totals = swept_while_open(field, totals_sweep(late="report"), writer.commit)
    assert (totals["late"], totals["remaining"]) == ({"rows": 0, "writers": 0, "unsure": 1, "proved": False}, 1)


@pytest.mark.parametrize("where", [None, "band is null"])
def test_at_least_once_handlers_get_late_rows_under_another_key(field: Field, where: str | None) -> None:
    """N-066, N-067: what others wrote since is handed out again, with a key that no batch before had."""
    orders_without(field, 3, rows=8)
    calls: list[tuple[str, list[int]]] = []

    @rs.backfill("index", rows=rs.Rows("orders", where=where), atomic=False, batch_rows=100, adapt=False)
    def index(batch: rs.Batch) -> None:
        calls.append((batch.key, [row["id"] for row in batch.rows]))

    with writing(field, INSERT) as writer:

        def end() -> None:
            writer.execute("update orders set qty = 9 where id = 8")  # a page of the same bounds as the first
            writer.commit()

        totals = swept_while_open(field, index, end)
    assert (totals["rows"], totals["late"]["rows"]) == (9, 2)
    assert [ids for _, ids in calls] == [[1, 2, 4, 5, 6, 7, 8], [3, 8]]
    assert len({key for key, _ in calls}) == 2


@pytest.mark.parametrize("where", [None, "band is null", "price > 0"])
def test_at_least_once_frames_are_not_all_done_again(field: Field, where: str | None) -> None:
    """N-057: rows that the sweep itself wrote are none of others'."""
    orders_without(field, 3, rows=8)
    seen: list[int] = []

    @rs.backfill("index", rows=rs.Rows("orders", where=where), atomic=False, batch_rows=4, adapt=False)
    def index(batch: rs.Batch) -> pl.DataFrame:
        seen.extend(batch.frame["id"].to_list())
        return batch.frame.select("id", band=pl.lit("done"))

    with writing(field, INSERT) as writer:
        assert swept_while_open(field, index, writer.commit)["late"] == {**ONE_LATE, "proved": where == "band is null"}
    assert seen == [1, 2, 4, 5, 6, 7, 8, 3]


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize(("where", "found"), [("band is null", [3, 4]), ("price > 0", [4])])
def test_another_source_is_looked_at_again_too(field: Field, where: str, found: list[int], *, atomic: bool) -> None:
    """N-066, N-057: a used-up condition finds what was committed before the last page too."""
    orders_without(field, 3, 4, rows=12)
    seen: list[int] = []
    rows = rs.Rows("orders", where=where)

    with (
        writing(field, "insert into orders (id, price, qty) values (4, 2, 5)") as last,
        writing(field, INSERT) as first,
    ):

        @rs.backfill("bands", rows=rows, source=field.dsn, atomic=atomic, batch_rows=4, adapt=False)
        def bands(batch: rs.Batch) -> pl.DataFrame:
            if batch.index == 1:
                first.commit()
            seen.extend(batch.frame["id"].to_list())
            return batch.frame.select("id", band=pl.lit("done"))

        totals = swept_while_open(field, bands, last.commit)
    assert seen == [1, 2, 5, 6, 7, 8, 9, 10, 11, 12, *found]
    assert totals["late"] == {"rows": len(found), "writers": 0, "unsure": 0, "proved": where == "band is null"}


@pytest.mark.parametrize("where", ["band is null", "price > 0"])
def test_pages_that_are_computed_ahead_are_looked_behind_too(field: Field, where: str) -> None:
    """N-057, N-060: what an executor answers is written back, and counted, in the batch's transaction."""
    orders_without(field, 3)

    def banded(batch: rs.Batch) -> pl.DataFrame:
        return batch.frame.select("id", band=pl.lit("done"))

    with ThreadPoolExecutor(2) as threads, writing(field, INSERT) as writer:
        rows = rs.Rows("orders", where=where)
        sweep = rs.backfill("bands", banded, rows=rows, executor=threads, batch_rows=4, adapt=False)
        totals = swept_while_open(field, sweep, writer.commit)
    assert totals["late"] == {**ONE_LATE, "proved": where == "band is null"}
    assert field.one("select band from orders where id = 3") == "done"
