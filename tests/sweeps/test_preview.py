"""A preview runs the real path over the first rows and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import psycopg
import pytest

import rowsweep as rs
from rowsweep.errors import (
    InvalidFrame,
    InvalidInput,
    InvalidOption,
    InvalidSweepSql,
    TransactionEnded,
    UnknownSource,
    UnsafePreview,
)
from rowsweep.jobs.ctx import Ctx
from tests.sweeps.field import Field

HANDLERS: dict[str, Callable[[rs.Batch], Any]] = {
    "frame": lambda batch: batch.frame.select("id", total=pl.col("price") * pl.col("qty")),
    "dicts": lambda batch: [{"id": row["id"], "total": row["price"] * row["qty"]} for row in batch.rows],
    "free": lambda batch: (
        batch.execute("update orders set total = price * qty where id <= %s", [batch.rows[-1]["id"]]) and None
    ),
}


def fails(batch: rs.Batch) -> None:
    """A handler with a bug."""
    raise KeyError(len(batch.rows))


def declare(form: str, rows: rs.Rows, **options: Any) -> Any:
    """Declare the sweep that totals orders."""
    if form == "set":
        return rs.backfill("totals", rows=rows, set={"total": "price * qty"}, **options)
    return rs.backfill("totals", HANDLERS[form], rows=rows, **options)


def untouched(field: Field) -> None:
    """Check that nothing stayed: no total, no job, no step, no ledger row, no transaction."""
    assert field.one("select count(*) from orders where total is not null") == 0
    for table in ("{x_jobs}", "{x_job_steps}", "{x_backfills}"):
        assert field.queue_sql(f"select count(*) from {table}") == [(0,)]
    assert field.one("select count(*) from pg_stat_activity where state like 'idle in transaction%'") == 0


@pytest.mark.parametrize("form", ["set", "frame", "dicts", "free"])
def test_the_first_rows_are_shown_before_and_after(field: Field, form: str) -> None:
    """N-090: the key, the swept columns, and those that changed; rolled back, without a worker."""
    field.orders(30)
    rows = rs.Rows("orders", columns=["price"], where="id > 5") if form == "set" else rs.Rows("orders", where="id > 5")
    frame = declare(form, rows, batch_rows=2).preview(4)
    expected = field.sql("select id, price, total, price * qty from orders where id between 6 and 9 order by id")
    assert frame.select("id", "price", "total", "total_after").rows() == expected
    assert frame.columns == (
        ["id", "price", "total", "total_after"]
        if form == "set"
        else ["id", "price", "qty", "total", "band", "total_after"]
    )
    untouched(field)


@pytest.mark.parametrize("form", ["set", "frame"])
def test_a_preview_of_sparse_rows_finds_as_many_as_were_asked_for(field: Field, form: str) -> None:
    """N-090: n matching rows by the key's own order, ten among them."""
    field.orders(200)
    frame = declare(form, rs.Rows("orders", where="id % 25 = 0 or id in (9, 10)")).preview(4)
    assert frame["id"].to_list() == [9, 10, 25, 50]
    assert declare_again(form).preview(100)["id"].len() == 100
    untouched(field)


def declare_again(form: str) -> Any:
    """Declare it over every row, under another name."""
    if form == "set":
        return rs.backfill("all", rows=rs.Rows("orders"), set={"total": "price * qty"})
    return rs.backfill("all", HANDLERS[form], rows=rs.Rows("orders"))


@pytest.mark.parametrize("form", ["set", "frame"])
def test_a_preview_of_nothing_has_the_shape_of_something(field: Field, form: str) -> None:
    """N-090: no matching row."""
    field.orders(3)
    frame = declare(form, rs.Rows("orders", where="id > 100")).preview()
    assert (frame.height, frame.columns[:3]) == (0, ["id", "price", "qty"])
    untouched(field)


def test_a_column_that_a_set_leaves_as_it_was_is_shown_too(field: Field) -> None:
    """N-090: what is set is shown, changed or not."""
    field.orders(3)
    frame = rs.backfill("same", rows=rs.Rows("orders"), set={"band": "band"}).preview()
    assert frame.select("band", "band_after").rows() == [(None, None)] * 3


@pytest.mark.parametrize("when", ["immediate", "deferred"])
def test_a_constraint_speaks_in_the_preview(field: Field, when: str) -> None:
    """N-090: deferred ones too, which would only speak at the commit."""
    field.orders(30)
    field.sql("create table bands (name text primary key)")
    field.sql(f"alter table orders add foreign key (band) references bands deferrable initially {when}")
    sweep = rs.backfill("bands", rows=rs.Rows("orders"), set={"band": "'none'"})
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        sweep.preview()
    untouched(field)


def test_what_the_launch_would_refuse_the_preview_refuses(field: Field) -> None:
    """N-090: the same path, so the same errors; but no gate."""
    field.orders(3)
    with pytest.raises(UnknownSource):
        rs.backfill("a", rows=rs.Rows("order"), set={"total": "1"}).preview()
    with pytest.raises(InvalidSweepSql):
        rs.backfill("b", rows=rs.Rows("orders", where="nothing"), set={"total": "1"}).preview()
    with pytest.raises(InvalidFrame, match="'bnad'"):
        rs.backfill("c", lambda b: b.frame.select("id", bnad=pl.lit(1)), rows=rs.Rows("orders")).preview()
    with pytest.raises(TransactionEnded):
        rs.backfill("d", lambda b: b.connection.commit(), rows=rs.Rows("orders")).preview()
    with pytest.raises(InvalidInput):
        rs.backfill("e", lambda _: None, rows=rs.Rows("orders"), input=int).preview(3, "x")
    sweep = rs.backfill("f", lambda _: None, rows=rs.Rows("orders"))
    for n in (0, -1, True, 10**9):
        with pytest.raises(InvalidOption, match="'n'"):
            sweep.preview(n)
    untouched(field)
    gated = rs.backfill("g", rows=rs.Rows("orders"), set={"band": "'x'"}, environments=("production",), requires=("z",))
    assert gated.preview().height == 3


def test_a_handler_that_ends_the_transaction_by_sql_is_refused(field: Field) -> None:
    """N-063, N-090."""
    field.orders(3)
    with pytest.raises(TransactionEnded):
        rs.backfill("d", lambda b: b.execute("rollback") and None, rows=rs.Rows("orders")).preview()
    untouched(field)


def test_a_handler_with_effects_elsewhere_is_previewed_only_when_that_is_allowed(field: Field) -> None:
    """N-091."""
    field.orders(3)
    seen: list[Any] = []

    @rs.backfill("index", rows=rs.Rows("orders"), atomic=False, input=int)
    def index(batch: rs.Batch) -> None:
        seen.append((batch.index, batch.input, batch.ctx, batch.signal, len(batch.rows), batch.key))

    with pytest.raises(UnsafePreview, match=r"allow_effects=True"):
        index.preview(2, 5)
    assert seen == []
    assert index.preview(2, 5, allow_effects=True).height == 2
    ((at, value, ctx, signal, rows, key),) = seen
    assert (at, value, ctx, signal, rows) == (0, 5, None, None, 2)
    assert key.startswith("00000000-0000-0000-0000-000000000000:")


def test_what_a_handler_enqueues_in_a_preview_is_rolled_back(field: Field) -> None:
    """N-090, N-015."""
    field.orders(3)

    @rs.job("follow", tenant="none", input=int)
    def follow(ctx: Ctx, first: int) -> None:
        """Follow up."""

    def handler(batch: rs.Batch) -> None:
        follow.enqueue(batch.rows[0]["id"])

    rs.backfill("enqueue", handler, rows=rs.Rows("orders")).preview()
    untouched(field)


def test_a_preview_waits_for_no_lock_for_long(field: Field) -> None:
    """N-090: it keeps the batch's timeouts."""
    field.orders(3)
    with field.other() as other, other.transaction():
        other.execute("select from orders for update")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            declare("set", rs.Rows("orders"), lock_timeout="10ms").preview()
    untouched(field)


def test_what_a_handler_raises_comes_with_its_own_lines(field: Field) -> None:
    """N-090: nothing of what lies between the caller and the handler."""
    field.orders(3)
    with pytest.raises(KeyError) as raised:
        rs.backfill("fails", fails, rows=rs.Rows("orders")).preview()
    assert [entry.name for entry in raised.traceback][1:] == ["preview", "preview", "fails"]
