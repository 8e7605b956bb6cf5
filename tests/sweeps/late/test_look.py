"""Late commits are found: transactions that were open when the pass went by are waited for, and swept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import polars as pl
import psycopg
import pytest

import rowsweep as rs
from tests.sweeps.field import NONE_LATE, Background, Field, fields_of, until

ONE_LATE = {"rows": 1, "writers": 0, "unsure": 0, "proved": True}
ONE_UNPROVED = {**ONE_LATE, "proved": False}
UNSWEPT = "select id from orders where total is distinct from price * qty"
INSERT = "insert into orders (id, price, qty) values (3, 2, 5)"


@contextmanager
def writing(field: Field, *statements: str) -> Iterator[psycopg.Connection[Any]]:
    """Hold a transaction open that has written; it is rolled back unless the block ends it."""
    with field.other() as connection:
        connection.execute("begin")
        for statement in statements:
            connection.execute(statement)
        yield connection


def waits_for_writers(field: Field, run: Any) -> Callable[[], bool]:
    return lambda: "open transaction" in (field.row(run).waiting_for or "")


def has_found_writers(field: Field, run: Any) -> Callable[[], bool]:
    """Say whether the pass has come to its end and keeps whom it waits for: a moment before it shows that."""
    return lambda: "sweep:writers" in field.steps(run)


def swept_while_open(field: Field, sweep: Any, end: Callable[[], object]) -> dict[str, Any]:
    """Let the pass come to its wait, end the transactions, and answer the totals."""
    run = sweep.launch()
    made = Background(lambda: field.finish(run))
    until(has_found_writers(field, run))
    end()
    totals: dict[str, Any] = made.result()
    return totals


def orders_without(field: Field, *ids: int, rows: int = 20, more: str = "") -> None:
    field.orders(rows, more=more)
    field.sql("delete from orders where id = any (%s)", [list(ids)])


def totals_sweep(where: str | None = "total is null", until: Any = "end", **given: Any) -> Any:
    rows = rs.Rows("orders", where=where, until=until)
    given.setdefault("set", {"total": "price * qty"})
    return rs.backfill("totals", rows=rows, batch_rows=4, adapt=False, **given)


@pytest.mark.parametrize("until_", ["end", "start"])
def test_a_transaction_that_is_open_across_the_pass_is_waited_for_and_swept(field: Field, until_: str) -> None:
    """N-057: it took a low key before the pass, and commits after the last page."""
    orders_without(field, 3)
    with writing(field, INSERT) as writer:
        totals = swept_while_open(field, totals_sweep(until=until_), writer.commit)
    assert (totals["rows"], totals["remaining"], totals["late"]) == (20, 0, ONE_LATE)
    assert field.sql(UNSWEPT) == []


def test_several_writers_are_waited_for_and_one_that_rolls_back_leaves_nothing(field: Field) -> None:
    """N-057: three are open, one under a savepoint, one rolls back; a row that was updated to match is due too."""
    orders_without(field, 3, 4)
    field.sql("update orders set total = 0 where id = 9")
    nested = ("savepoint a", "insert into orders (id, price, qty) values (4, 1, 1)", "release a")
    with (
        writing(field, INSERT) as first,
        writing(field, *nested, "update orders set total = null where id = 9") as second,
        writing(field, "insert into orders (id, price, qty) values (100, 1, 1)") as third,
    ):

        def end() -> None:
            third.rollback()
            first.commit()
            second.commit()

        totals = swept_while_open(field, totals_sweep(), end)
    assert totals["late"] == {"rows": 3, "writers": 0, "unsure": 0, "proved": True}
    assert field.sql(UNSWEPT) == []


def test_who_took_a_key_of_the_sequence_and_has_not_written_yet_is_waited_for(field: Field) -> None:
    """N-057: the low key is taken by nextval; the insert comes after the pass."""
    field.sql(
        "create table orders (id bigserial primary key, price int not null default 1, qty int default 2, total int)"
    )
    field.sql("insert into orders default values")
    with writing(field, "select nextval('orders_id_seq')") as writer:
        field.sql("insert into orders (price) select 1 from generate_series(1, 9)")

        def end() -> None:
            writer.execute("insert into orders (id) values (2)")
            writer.commit()

        totals = swept_while_open(field, totals_sweep(), end)
    assert (totals["rows"], totals["late"]) == (11, ONE_LATE)
    assert field.sql(UNSWEPT) == []


def test_a_late_commit_during_the_pages_is_found_without_a_wait(field: Field) -> None:
    """N-057: the transaction was open when its range was read, and over before the last page."""
    orders_without(field, 3)
    with writing(field, INSERT) as writer:

        @rs.backfill("totals", rows=rs.Rows("orders", where="total is null"), batch_rows=4, adapt=False)
        def totals(batch: rs.Batch) -> pl.DataFrame:
            if batch.index == 3:
                writer.commit()
            return batch.frame.select("id", total=pl.col("price") * pl.col("qty"))

        result = field.sweep(totals)
    assert (result["rows"], result["late"], result["remaining"]) == (20, ONE_LATE, 0)
    assert field.sql(UNSWEPT) == []


def test_one_that_outlives_the_wait_is_said_and_shown(field: Field, caplog: pytest.LogCaptureFixture) -> None:
    """N-057: the wait is bounded; result and log say that one is open still."""
    orders_without(field, 3)
    caplog.set_level("INFO", logger="rowsweep")
    with writing(field, INSERT):
        totals = field.sweep(totals_sweep(late_wait="0s"))
        assert totals["late"] == {"rows": 0, "writers": 1, "unsure": 0, "proved": True}
    (said,) = fields_of(caplog.records, "sweeps.late.unseen")
    assert (said["writers"], said["rows"]) == (1, 0)
    assert said["fix"] == "rowsweep sweeps verify totals"
    (snapshot,) = field.app.runs(name="totals")
    assert snapshot.options["late"] == totals["late"]
    assert f"1 open writer unseen: rowsweep sweeps verify {snapshot.run_id}" in repr(rs.attach("totals"))


def test_composite_and_text_keys_are_looked_at_again_too(field: Field) -> None:
    """N-057, N-053: the second look walks the same key."""
    field.sql("create table orders (shop text, id uuid, price int, qty int, total int, primary key (shop, id))")
    insert = "insert into orders select %s, md5(i::text)::uuid, 2, i from generate_series(%s::int, %s::int) i"
    field.sql(insert, ["a", 1, 10])
    field.sql(insert, ["é", 11, 20])
    with field.other() as writer:
        writer.execute("begin")
        writer.execute(insert, ["a", 21, 23])
        totals = swept_while_open(field, totals_sweep(), writer.commit)
    assert (totals["rows"], totals["late"]["rows"]) == (23, 3)
    assert field.sql("select id from orders where total is distinct from price * qty") == []


def test_a_pass_without_other_writers_has_nothing_late(field: Field) -> None:
    """N-057: also where it applies a second time."""
    field.orders(20)
    sweep = totals_sweep()
    assert field.sweep(sweep)["late"] == NONE_LATE
    field.sql("update orders set total = null")
    result = field.sweep(sweep, force=True)
    assert (result["rows"], result["late"]) == (20, NONE_LATE)


def test_shards_look_again_together_once_all_have_passed(field: Field) -> None:
    """N-087, N-057: a late row of each range is found, and the receipt knows what each has covered."""
    orders_without(field, 3, 18)
    run = totals_sweep(shards=2).launch()
    late = "insert into orders (id, price, qty) values (18, 2, 5)"
    with writing(field, INSERT, late) as writer, field.working(concurrency=4):
        until(waits_for_writers(field, run))
        writer.commit()
        totals = run.wait(timeout="20s")
    assert (totals["rows"], totals["shards"], totals["late"]["rows"]) == (20, 2, 2)
    assert field.sql(UNSWEPT) == []
    receipt = run.verify()
    assert receipt.is_complete is True
    (first, middle), (again, last) = sorted(receipt.covered, key=lambda each: each[0] is not None)
    assert (first, middle, last) == (None, again, None)


@pytest.mark.slow
def test_shards_that_leave_a_row_that_matches_prove_nothing(field: Field) -> None:
    """N-087, N-060: one shard's row that outlasts its condition speaks for all; one that came behind it is done."""
    orders_without(field, 3)
    field.sql("update orders set qty = 1; update orders set qty = 0 where id = 19")
    run = totals_sweep(where="qty < 2", set={"qty": "qty + 1"}, shards=2).launch()
    late = "insert into orders (id, price, qty) values (3, 1, 0)"
    with writing(field, late) as writer, field.working(concurrency=4):
        until(waits_for_writers(field, run))
        writer.commit()
        totals = run.wait(timeout="20s")
    assert totals["late"] == ONE_UNPROVED
    assert field.sql("select id, qty from orders where qty < 2 order by id") == [(3, 1), (19, 1)]
