"""A second look does no row twice: what cannot be told from a row that was done is left, and said."""

from __future__ import annotations

from typing import Any

import polars as pl
import psycopg
import pytest
from psycopg import sql

import rowsweep as rs
from rowsweep.sweeps.batch.closing import Closer
from rowsweep.sweeps.batch.pages import PageFinder
from rowsweep.sweeps.late.judging import Look
from tests.sweeps.field import NONE_LATE, Field, fields_of
from tests.sweeps.late.test_look import (
    INSERT,
    ONE_LATE,
    UNSWEPT,
    orders_without,
    swept_while_open,
    totals_sweep,
    writing,
)


class Odd(Exception):
    """What no other try mends."""

    retry = "terminal"


PLUS_ONE = {"qty": "qty + 1"}
UPDATE = "update orders set band = 'theirs' where id = 2"


def plus_one(where: str | None, **given: Any) -> Any:
    given.setdefault("set", PLUS_ONE)
    return rs.backfill("plus-one", rows=rs.Rows("orders", where=where), batch_rows=4, adapt=False, **given)


def quantities(field: Field) -> dict[int, int]:
    return dict(field.sql("select id, qty - (id %% 7 + 1) from orders order by id".replace("%%", "%")))


def test_a_sweep_whose_condition_holds_behind_it_repeats_no_row(field: Field) -> None:
    """N-060, N-057: a row that was there may have been done before: it is counted, and one that was not is done."""
    orders_without(field, 3)
    with writing(field, INSERT) as writer:

        def end() -> None:
            writer.execute(UPDATE)
            writer.commit()

        totals = swept_while_open(field, plus_one("price > 0"), end)
    assert totals["late"] == {"rows": 1, "writers": 0, "unsure": 1, "proved": False}
    assert quantities(field) == {**dict.fromkeys(range(1, 21), 1), 3: 2}  # the late row had 5 where the others had 4


def test_a_condition_that_one_row_outlasts_is_not_used_up(field: Field) -> None:
    """N-060: 4 becomes 5 and is out, 3 becomes 4 and matches still: no row is done a second time."""
    field.orders(20)
    field.sql("update orders set qty = 4; update orders set qty = 3 where id = 7; insert into orders values (30, 1, 9)")
    with writing(field, "update orders set band = 'x' where id = 30", "delete from orders where id = 30") as writer:

        def end() -> None:
            writer.execute("update orders set band = 'theirs' where id = 7")
            writer.commit()

        totals = swept_while_open(field, plus_one("qty < 5"), end)
    assert (totals["rows"], totals["late"]) == (20, {"rows": 0, "writers": 0, "unsure": 1, "proved": False})
    assert field.one("select qty from orders where id = 7") == 4


@pytest.mark.parametrize("kind", ["expression", "handler", "frame"])
def test_a_condition_that_is_used_up_finds_late_rows_whatever_is_done_to_them(field: Field, kind: str) -> None:
    """N-060, N-057: adding one is no idempotent work; the mark it leaves makes each row that matches a new one."""
    orders_without(field, 3, more=", done bool not null default false")
    rows = rs.Rows("orders", where="not done")
    sweep: Any
    if kind == "expression":
        sweep = plus_one("not done", set={**PLUS_ONE, "done": "true"})
    elif kind == "handler":

        @rs.backfill("plus-one", rows=rows, batch_rows=4, adapt=False)
        def sweep(batch: rs.Batch) -> None:
            with batch.connection.transaction():
                ids = [row["id"] for row in batch.rows]
                batch.execute("update orders set qty = qty + 1, done = true where id = any (%s)", [ids])
    else:

        @rs.backfill("plus-one", rows=rows, batch_rows=4, adapt=False)
        def sweep(batch: rs.Batch) -> pl.DataFrame:
            return batch.frame.select("id", qty=pl.col("qty") + 1, done=pl.lit(value=True))

    with writing(field, INSERT) as writer:

        def end() -> None:
            writer.execute(UPDATE)
            writer.commit()

        totals = swept_while_open(field, sweep, end)
    assert totals["late"] == ONE_LATE
    assert set(quantities(field).values()) - {quantities(field)[3]} == {1}
    assert field.one("select qty from orders where id = 3") == 6


@pytest.mark.parametrize("writes", ["sql", "frame"])
def test_a_handler_that_leaves_a_row_as_it_is_sees_no_row_twice(field: Field, writes: str) -> None:
    """N-060: what it did elsewhere in the database for a row that it left must not be done again."""
    orders_without(field, 3)
    field.sql("create table seen (id int)")

    @rs.backfill("seen", rows=rs.Rows("orders", where="band is null"), batch_rows=4, adapt=False)
    def sweep(batch: rs.Batch) -> pl.DataFrame | None:
        batch.execute("insert into seen select unnest(%s::int[])", [[row["id"] for row in batch.rows]])
        if writes == "frame":
            return batch.frame.filter(pl.col("id") != 2).select("id", band=pl.lit("done"))
        batch.execute("update orders set band = 'done' where id = any (%s) and id <> 2", [batch.frame["id"].to_list()])
        return None

    with writing(field, INSERT) as writer:

        def end() -> None:
            writer.execute("update orders set qty = 9 where id = 2")
            writer.commit()

        totals = swept_while_open(field, sweep, end)
    assert totals["late"] == {"rows": 1, "writers": 0, "unsure": 1, "proved": False}
    assert field.sql("select id from seen group by id having count(*) > 1") == []


def test_expressions_that_settle_are_applied_where_they_change_a_row_and_nowhere_else(field: Field) -> None:
    """N-060: rows whose total stays null match for ever; each is written once, a late one too."""
    orders_without(field, 3)
    field.sql("alter table orders alter price drop not null; update orders set price = null where id > 15")
    field.sql("create table writes (id bigint)")
    field.sql(
        "create function note() returns trigger language plpgsql as "
        "$$ begin insert into writes values (new.id); return new; end $$; "
        "create trigger note after update on orders for each row execute function note()"
    )
    with writing(field, INSERT) as writer:
        totals = swept_while_open(field, totals_sweep(), writer.commit)
    assert (totals["late"], totals["remaining"]) == (ONE_LATE, 5)
    assert field.sql("select count(*), count(distinct id) from writes") == [(20, 20)]


def test_rows_that_were_set_aside_are_not_tried_again(field: Field, caplog: pytest.LogCaptureFixture) -> None:
    """N-084, N-057: they match still, and would fail again; a late row is done."""
    orders_without(field, 3)
    field.sql("alter table orders add check (total <> 3.75)")
    field.sql("update orders set price = 1.25, qty = 3 where id = 5")
    with writing(field, INSERT) as writer:
        totals = swept_while_open(field, totals_sweep(on_error="set-aside"), writer.commit)
    assert (totals["rejected"], totals["late"], totals["remaining"]) == (1, ONE_LATE, 1)
    assert field.sql(UNSWEPT) == [(5,)]
    assert len(fields_of(caplog.records, "sweeps.row.set-aside")) == 1


def test_what_a_look_asks_is_asked_of_no_row_set_aside_whatever_is_cheaper(field: Field) -> None:
    """N-084, N-057: the planner asks the cheapest condition first, which may be the expression that failed for them."""
    field.orders(3)
    field.sql("update orders set qty = 0 where id = 2")
    field.sql("create function dear(id bigint) returns bool language plpgsql cost 10000 as 'begin return id <> 2; end'")
    look = Look(also=sql.SQL("1 / qty >= 0").format()).without(sql.SQL("dear(id)").format())
    assert look.also is not None
    assert field.one(sql.SQL("select count(*) from orders where {}").format(look.also).as_string(None)) == 2


def test_rows_that_a_launch_lets_be_set_aside_are_not_tried_again_either(field: Field) -> None:
    """N-084, N-057: whether rows are set aside is the run's choice, whatever the sweep declares."""
    field.orders(20)
    alone: list[int] = []

    @rs.backfill("bands", rows=rs.Rows("orders", where="band is null"), batch_rows=4, adapt=False)
    def bands(batch: rs.Batch) -> pl.DataFrame:
        ids = batch.frame["id"].to_list()
        if 5 in ids:
            alone.extend(ids if len(ids) == 1 else [])
            raise ValueError("five")
        return batch.frame.select("id", band=pl.lit("done"))

    totals = field.finish(bands.launch(on_error="set-aside"))
    assert (totals["rows"], totals["rejected"], totals["late"]) == (19, 1, NONE_LATE)
    assert alone == [5]


def test_a_look_for_a_few_rows_among_many_goes_from_one_to_the_next(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-057: a page for every four late rows, not for every four rows of the table."""
    orders_without(field, *range(10, 201, 10), rows=200)
    many = "insert into orders (id, price, qty) select i, 2, 5 from generate_series(10, 200, 10) i"
    with writing(field, many) as writer:

        def end() -> None:
            monkeypatch.setattr(PageFinder, "find", finding)
            writer.commit()

        find, found = PageFinder.find, []

        def finding(self: PageFinder, at: Any, limit: int) -> Any:
            found.append(find(self, at, limit))
            return found[-1]

        totals = swept_while_open(field, totals_sweep(), end)
    assert (totals["rows"], totals["late"]["rows"]) == (200, 20)
    assert [None if page is None else page.to[0] for page in found] == ["40", "80", "120", "160", "200", None]


@pytest.mark.parametrize("kind", ["sql", "savepoint", "frame"])
def test_a_row_that_others_put_into_the_page_meanwhile_is_no_row_that_was_left(field: Field, kind: str) -> None:
    """N-060, N-057: it is over before the batch is, younger than the batch, and found by the second look."""
    orders_without(field, 3)

    @rs.backfill("bands", rows=rs.Rows("orders", where="band is null"), batch_rows=4, adapt=False)
    def bands(batch: rs.Batch) -> pl.DataFrame | None:
        ids = batch.frame["id"].to_list()
        if batch.index == 0:
            with field.other() as other:
                other.execute(INSERT)
        if kind == "frame":
            return batch.frame.select("id", band=pl.lit("done"))
        if kind == "sql":
            batch.execute("update orders set band = 'done' where id = any (%s)", [ids])
            return None
        with batch.connection.transaction():
            batch.execute("update orders set band = 'done' where id = any (%s)", [ids])
        return None

    totals = field.sweep(bands)
    assert (totals["rows"], totals["late"], totals["remaining"]) == (20, ONE_LATE, 0)


def test_a_row_that_a_savepoint_of_the_handler_leaves_is_left(field: Field) -> None:
    """N-060: what it wrote there is its own, and matches still."""
    orders_without(field, 3)

    @rs.backfill("bands", rows=rs.Rows("orders", where="qty > 0"), batch_rows=4, adapt=False)
    def bands(batch: rs.Batch) -> None:
        with batch.connection.transaction():
            batch.execute("update orders set qty = qty + 1 where id = any (%s)", [[row["id"] for row in batch.rows]])

    with writing(field, INSERT) as writer:

        def end() -> None:
            writer.execute(UPDATE)
            writer.commit()

        totals = swept_while_open(field, bands, end)
    assert totals["late"] == {"rows": 1, "writers": 0, "unsure": 1, "proved": False}


def test_a_row_that_a_part_of_a_failing_page_leaves_is_left(field: Field) -> None:
    """N-060, N-084: parts are done under savepoints; what they wrote and left is none of others'."""
    orders_without(field, 3, rows=8)
    calls: list[int] = []

    @rs.backfill(
        "bands",
        rows=rs.Rows("orders", where="band is null or band = 'odd'"),
        on_error="set-aside",
        batch_rows=8,
        adapt=False,
    )
    def bands(batch: rs.Batch) -> pl.DataFrame:
        ids = batch.frame["id"].to_list()
        if 5 in ids:
            raise Odd
        calls.extend(ids)
        return batch.frame.select("id", band=pl.when(pl.col("id") == 2).then(pl.lit("odd")).otherwise(pl.lit("done")))

    with writing(field, INSERT) as writer:

        def end() -> None:
            writer.execute("update orders set qty = 9 where id = 2")
            writer.commit()

        totals = swept_while_open(field, bands, end)
    assert (totals["rejected"], totals["late"]) == (1, {"rows": 1, "writers": 0, "unsure": 1, "proved": False})
    assert sorted(calls) == [1, 2, 3, 4, 6, 7, 8]


@pytest.mark.usefixtures("hasty")
def test_what_a_batch_noted_that_rolled_back_is_noted_again(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-060: the note is stored with a batch that left a row, or not at all."""
    orders_without(field, 3)
    close = Closer.close
    failed: list[Any] = []

    def failing(self: Closer, *given: Any, **more: Any) -> Any:
        if not failed:
            failed.append(given)
            raise psycopg.errors.LockNotAvailable("not this time")
        return close(self, *given, **more)

    monkeypatch.setattr(Closer, "close", failing)

    @rs.backfill("bands", rows=rs.Rows("orders", where="price > 0"), batch_rows=4, adapt=False)
    def bands(batch: rs.Batch) -> pl.DataFrame:
        return batch.frame.select("id", band=pl.lit("done"))

    run = bands.launch()
    field.finish(run)
    assert failed
    assert "sweep:left" in field.steps(run)
