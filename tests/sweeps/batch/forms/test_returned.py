"""What a handler returns: written exactly where it differs, or refused with the column, the key and the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import rowsweep as rs
from rowsweep.errors import SweepFailed
from tests.sweeps.field import NONE_SEEN, Field

Handler = Callable[[rs.Batch], Any]


def refused(field: Field, handler: Handler, *words: str) -> str:
    """Sweep with a handler whose answer must be refused at once; nothing is written, nothing tried again."""
    run = rs.backfill("bands", handler, rows=rs.Rows("orders"), batch_rows=4, adapt=False).launch()
    with pytest.raises(SweepFailed):
        field.finish(run)
    row, job = field.row(run), field.job(run)
    assert (row.last_error_code, job.attempt, job.state) == ("X_SWEEP_FRAME_INVALID", 1, "dead")
    assert (row.rows, row.batches) == (0, 0)
    assert field.one("select count(*) from orders where band is not null") == 0
    error = row.last_error or ""
    for word in (*words, "Fix: ", "in batch 0, keys after the beginning up to (4)"):
        assert word in error
    return error


def frame(text: Callable[[pl.DataFrame], Any]) -> Handler:
    """Make a handler of what it does to the frame."""
    return lambda batch: text(batch.frame)


BANDED = pl.lit("low").alias("band")

REFUSED: dict[str, tuple[Handler, list[str]]] = {
    "without the key": (frame(lambda f: f.select("price", band=BANDED)), ["lacks the key column 'id'", "'price'"]),
    "only the key": (frame(lambda f: f.select("id")), ["only the key"]),
    "an unknown column": (frame(lambda f: f.select("id", bnad=BANDED)), ["'bnad'", "nearest: 'band'"]),
    "a generated column": (frame(lambda f: f.select("id", twice=pl.lit(1))), ["'twice'", "generated"]),
    "a key twice": (
        frame(lambda f: pl.concat([f.select("id", band=BANDED)] * 2)),
        ["id=1", "more than once", "frame.unique(['id'])"],
    ),
    "a key twice in dicts": (lambda _: [{"id": 2, "band": "x"}, {"id": 2, "band": "y"}], ["id=2", "more than once"]),
    "a null key": (frame(lambda f: f.select(pl.lit(None).cast(pl.Int64).alias("id"), band=BANDED)), ["null", "'id'"]),
    "a null key in dicts": (lambda _: [{"id": None, "band": "x"}], ["null", "'id'"]),
    "a row of no page": (frame(lambda f: f.select(pl.col("id") + 4, band=BANDED)), ["id=5", "no such row"]),
    "a row of no page in dicts": (
        lambda b: [{"id": row["id"] + 4, "band": "x"} for row in b.rows],
        ["id=5", "no such"],
    ),
    "a row of no page unread": (lambda _: [{"id": 5, "band": "x"}], ["id=5", "no such row"]),
    "a row that is nowhere": (lambda _: [{"id": 1, "band": "x"}, {"id": -1, "band": "x"}], ["id=-1", "no such row"]),
    "a key of another type": (frame(lambda f: f.select(pl.lit("x").alias("id"), band=BANDED)), ["'id'", "Int64"]),
    "a key that is no whole number": (frame(lambda f: f.select(pl.col("id") + 0.5, band=BANDED)), ["'id'", "Float64"]),
    "a key of another type in dicts": (lambda _: [{"id": "x", "band": "x"}], ["'id'", "'x'", "bigint"]),
    "text for a number": (
        frame(lambda f: f.select("id", qty=pl.when(pl.col("id") == 3).then(pl.lit("many")).otherwise(pl.lit("2")))),
        ["'many'", "'qty'", "id=3", "integer"],
    ),
    "a fraction for a whole number": (frame(lambda f: f.select("id", qty=pl.lit(1.5))), ["'1.5'", "'qty'", "id=1"]),
    "a number that is too large": (
        frame(lambda f: f.select("id", qty=pl.lit(2**40))),
        ["'1099511627776'", "'qty'", "id=1", "out of range"],
    ),
    "text that is too long": (
        lambda _: [{"id": 2, "code": "abcd"}],
        ["'abcd'", "'code'", "id=2", "character varying(3)"],
    ),
    "a value that its domain refuses": (lambda _: [{"id": 2, "even": 3}], ["'3'", "'even'", "id=2"]),
    "null for a domain that refuses it": (lambda _: [{"id": 2, "even": None}], ["'even'", "id=2", "null"]),
    "text with NUL": (
        lambda _: [{"id": 1, "band": "fine\nand long"}, {"id": 2, "band": "a\x00b"}],
        ["'band'", "id=2", "\\x00"],
    ),
    "text with a lone surrogate": (
        lambda _: [{"id": 1, "band": None}, {"id": 2, "band": "a\ud800"}],
        ["'band'", "id=2", "\\ud800"],
    ),
    "a wrong value behind lines of text": (
        lambda _: [{"id": 1, "band": 'a\nb\r\n"c"\n', "qty": 1}, {"id": 2, "band": "x", "qty": "no"}],
        ["'no'", "'qty'", "id=2"],
    ),
    "Python objects": (frame(lambda f: f.select("id").with_columns(pl.Series("band", [object()] * 4))), ["'band'"]),
    "a number": (lambda _: 4, ["int", "expected a polars frame"]),
    "text": (lambda _: "done", ["str"]),
    "a list of lists": (lambda _: [[1, "x"]], ["list"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_written_is_refused_with_column_key_and_value(field: Field, name: str) -> None:
    """N-064, N-051, S-124: terminal on the attempt that returned it."""
    field.orders(9, more=", twice bigint generated always as (id * 2) stored, code varchar(3)")
    field.sql("create domain even as int not null default 2 check (value % 2 = 0)")
    field.sql("alter table orders add column even even not null default 2")
    handler, words = REFUSED[name]
    refused(field, handler, *words)


def test_what_the_key_is_computed_from_may_come_back_only_as_it_was(field: Field) -> None:
    """N-051, N-053: another value would move its row ahead of the cursor, to be swept again without end."""
    field.sql("create table t (id int, n int, k int generated always as (id * 2) stored primary key)")
    field.sql("insert into t (id) select generate_series(1, 9)")
    rows, same = rs.Rows("t"), frame(lambda f: f.with_columns(n=pl.lit(1)))
    assert field.sweep(rs.backfill("same", same, rows=rows, batch_rows=4, adapt=False))["written"] == 9
    moving = frame(lambda f: f.with_columns(id=pl.when(pl.col("id") == 3).then(30).otherwise(pl.col("id"))))
    run = rs.backfill("moving", moving, rows=rows, batch_rows=4, adapt=False).launch()
    with pytest.raises(SweepFailed, match="Another value of 'id' was returned for the row k=6"):
        field.finish(run)
    assert (field.row(run).last_error_code, field.one("select sum(id) from t")) == ("X_SWEEP_FRAME_INVALID", 45)


ACCEPTED: dict[str, Handler] = {
    "a frame": frame(lambda f: f.select("id", band=pl.lit("b"))),
    "a lazy frame": frame(lambda f: f.lazy().select("id", band=pl.lit("b"))),
    "an Arrow table": lambda b: pa.table({"id": b.arrow["id"], "band": ["b"] * b.arrow.num_rows}),
    "dicts": lambda b: [{"id": row["id"], "band": "b"} for row in b.rows],
    "dicts with the columns in any order": lambda b: [{"band": "b", "id": row["id"]} for row in b.rows],
    "keys of another whole type": frame(lambda f: f.select(pl.col("id").cast(pl.Float64), band=pl.lit("b"))),
    "keys as text": frame(lambda f: f.select(pl.col("id").cast(pl.String), band=pl.lit("b"))),
    "keys as text in dicts": lambda b: [{"id": str(row["id"]), "band": "b"} for row in b.rows],
    "a categorical": frame(lambda f: f.select("id", band=pl.lit("b").cast(pl.Categorical))),
    "rows in another order": frame(lambda f: f.select("id", band=pl.lit("b")).reverse()),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_whatever_holds_rows_is_taken(field: Field, name: str) -> None:
    """N-064: polars, the Arrow C stream, dicts."""
    field.orders(9)
    sweep = rs.backfill("bands", ACCEPTED[name], rows=rs.Rows("orders"), batch_rows=4, adapt=False)
    assert field.sweep(sweep) == {
        "rows": 9,
        "written": 9,
        "batches": 3,
        "rejected": 0,
        "remaining": None,
        "late": NONE_SEEN,
    }
    assert field.sql("select band, count(*) from orders group by 1") == [("b", 9)]


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: None,
        lambda _: [],
        frame(lambda f: f.select("id", "band").clear()),
        frame(lambda f: f),
        frame(lambda f: f.select("id", band=pl.lit(None))),
        lambda b: b.rows,
        lambda b: b.arrow,
    ],
)
def test_what_changes_nothing_writes_nothing(field: Field, answer: Handler) -> None:
    """N-064: `written` counts what really differs; the rows are swept all the same."""
    field.orders(9)
    before = field.sql("select ctid, xmin::text, id from orders order by id")
    sweep = rs.backfill("bands", answer, rows=rs.Rows("orders"), batch_rows=4, adapt=False)
    totals = field.sweep(sweep)
    assert (totals["rows"], totals["written"]) == (9, 0)
    assert field.sql("select ctid, xmin::text, id from orders order by id") == before


def test_rows_may_be_left_out_and_only_changed_ones_are_written(field: Field) -> None:
    """N-064: swept, written."""
    field.orders(10)
    field.sql("update orders set band = 'low' where id <= 3")

    def handler(batch: rs.Batch) -> pl.DataFrame:
        return batch.frame.filter(pl.col("id") <= 6).select("id", band=pl.lit("low"))

    totals = field.sweep(rs.backfill("bands", handler, rows=rs.Rows("orders"), batch_rows=4, adapt=False))
    assert (totals["rows"], totals["written"]) == (10, 3)
    assert field.one("select count(*) from orders where band = 'low'") == 6


def test_a_key_that_travels_as_text_is_known_without_the_frame(field: Field) -> None:
    """N-064: a handler that read the page before, and answers for this one without reading it."""
    field.sql("create table t (k bytea primary key, n int not null default 0)")
    field.sql("insert into t (k) values ('\\x00'), ('\\x01ff'), ('\\x02'), ('\\x03')")

    def handler(batch: rs.Batch) -> pl.DataFrame:
        keys = batch.frame["k"] if batch.index == 0 else pl.Series("k", [b"\x02", b"\x03"])
        return pl.DataFrame({"k": keys, "n": [1] * len(keys)})

    field.sweep(rs.backfill("bytes", handler, rows=rs.Rows("t"), batch_rows=2, adapt=False))
    assert field.sql("select n, count(*) from t group by 1") == [(1, 4)]


def test_the_columns_returned_may_differ_from_batch_to_batch(field: Field) -> None:
    """N-064: each batch is staged by what it returns."""
    field.orders(9)

    def handler(batch: rs.Batch) -> pl.DataFrame:
        kept = batch.frame.select("id", pl.lit("b").alias("band"), pl.lit(1).alias("total"))
        return kept.select("id", ["band", "total"][batch.index % 2])

    field.sweep(rs.backfill("bands", handler, rows=rs.Rows("orders"), batch_rows=3, adapt=False))
    assert field.sql("select band, total, count(*) from orders group by 1, 2 order by min(id)") == [
        ("b", None, 6),
        (None, 1, 3),
    ] or field.sql("select band, total::int, count(*) from orders group by 1, 2 order by 3") == [
        (None, 1, 3),
        ("b", None, 6),
    ]


TYPES = (
    pl.Int32, pl.Boolean, pl.Int64, pl.Decimal(8, 2), pl.Datetime("us", "UTC"), pl.Date, pl.Binary, pl.List(pl.String),
    pl.Float32, pl.String, pl.String, pl.Time, pl.List(pl.Int32),
)  # fmt: skip


def test_a_page_of_nulls_has_the_types_of_its_columns(field: Field) -> None:
    """N-059: the schema is the catalog's, whatever the page holds; only declared columns are read."""
    field.sql(
        "create table t (id int primary key, a bool, b bigint, c numeric(8,2), d timestamptz, e date, f bytea, "
        "g text[], h float4, i jsonb, j uuid, k time, l int[], hidden text)"
    )
    field.sql("insert into t (id) values (1)")
    seen: list[Any] = []

    def handler(batch: rs.Batch) -> None:
        seen.extend([batch.frame.schema, batch.arrow.schema.names, batch.frame is batch.frame])

    field.sweep(rs.backfill("look", handler, rows=rs.Rows("t", columns=list("abcdefghijkl"))))
    assert dict(seen[0]) == dict(zip(["id", *"abcdefghijkl"], TYPES, strict=True))
    assert seen[1:] == [["id", *"abcdefghijkl"], True]


def test_dicts_have_the_values_of_psycopg_and_text_where_it_has_no_type(field: Field) -> None:
    """S-184: an enum is its label, a composite its text; nothing is raw bytes but bytea."""
    field.sql("create type mood as enum ('sad'); create type pair as (a int, b text)")
    field.sql("create table t (id int primary key, a mood, b pair, c bytea, d bit(3), e int4range, f mood[])")
    field.sql("insert into t values (1, 'sad', row(1, 'x'), '\\x01', B'101', '[1,5)', '{sad}')")
    seen: list[dict[str, Any]] = []
    field.sweep(rs.backfill("look", lambda batch: seen.extend(batch.rows), rows=rs.Rows("t")))
    ((row),) = seen
    assert (row["a"], row["b"], row["c"], row["d"], row["f"]) == ("sad", "(1,x)", b"\x01", "101", "{sad}")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("timestamptz", "infinity"),
        ("numeric(8,2)", "NaN"),
        ("time", "24:00:00"),
        ("int[]", "{{1,2},{3,4}}"),
    ],
)
def test_a_value_that_no_frame_can_hold_is_refused_with_its_row(field: Field, kind: str, value: str) -> None:
    """N-064, N-059: what has no place in Arrow; terminal, since nothing changes it. set= needs none."""
    field.sql(f"create table t (id int primary key, v {kind}, n int)")
    field.sql("insert into t values (1, null, 0), (2, %s, 0)", [value])
    run = rs.backfill("look", lambda batch: batch.frame, rows=rs.Rows("t")).launch()
    with pytest.raises(SweepFailed) as caught:
        field.finish(run)
    for word in ("'v'", "id=2", "Rows(columns="):
        assert word in str(caught.value)
    assert field.job(run).attempt == 1
    field.sweep(rs.backfill("count", rows=rs.Rows("t"), set={"n": "n + 1"}))
    assert field.one("select count(*) from t where n = 1") == 2


@pytest.mark.parametrize(
    ("kind", "value"),
    [("timestamptz", "-infinity"), ("date", "infinity"), ("time", "24:00:00"), ("date", "0044-03-15 BC")],
)
@pytest.mark.parametrize("form", ["rows", "frame"])
def test_an_instant_that_python_has_not_is_refused_with_ways_that_lead_on(
    field: Field, kind: str, value: str, form: str
) -> None:
    """N-059, S-432: at once and by its column; neither form has it, so none is the way out of the other."""
    field.sql(f"create table t (v {kind} primary key, n int)")
    field.sql("insert into t values (%s, 0)", [value])
    run = rs.backfill("look", lambda batch: getattr(batch, form), rows=rs.Rows("t")).launch()
    with pytest.raises(SweepFailed) as caught:
        field.finish(run)
    assert "'v'" in str(caught.value)
    assert "isfinite" in str(caught.value.fix)
    assert "batch.rows" not in str(caught.value.fix)
    assert field.job(run).attempt == 1


@pytest.mark.parametrize("answer", [frame(lambda f: f), lambda b: b.rows])
def test_a_composite_of_nulls_and_an_empty_bytea_are_not_null(field: Field, answer: Handler) -> None:
    """N-064: `is null` is true of the one, an empty CSV field is what the other would be."""
    field.sql("create type pair as (a int, b text)")
    field.sql("create table t (id int primary key, p pair, b bytea, n int[], c char(4))")
    field.sql("insert into t values (1, row(null, null), '', '{}', ' '), (2, null, null, null, null)")
    before = field.sql("select ctid, t::text from t order by id")
    totals = field.sweep(rs.backfill("same", answer, rows=rs.Rows("t")))
    assert (totals["rows"], totals["written"]) == (2, 0)
    assert field.sql("select ctid, t::text from t order by id") == before


@pytest.mark.parametrize("form", ["frame", "dicts"])
def test_a_change_between_values_that_compare_as_equal_arrives(field: Field, form: str) -> None:
    """N-064: a citext's case, a number's scale, an interval's units: equal to Postgres, not the same to anybody."""
    field.sql("create extension citext")
    field.sql("create table t (id int primary key, c citext, n numeric, v interval, f float8, j json)")
    field.sql(
        """insert into t values (1, 'ABC', 1.5, '1 mon', '-0', '{"a":1}'), (2, 'abc', 1.50, '30 days', '0', '1')"""
    )
    changed = {"c": "abc", "n": "1.50", "v": "30 days", "f": 0.0, "j": '{"a": 1}'}

    def handler(batch: rs.Batch) -> Any:
        if form == "dicts":
            return [{"id": 1, **changed}]
        return pl.DataFrame({"id": [1], **{name: [value] for name, value in changed.items()}})

    totals = field.sweep(rs.backfill("same", handler, rows=rs.Rows("t")))
    assert (totals["rows"], totals["written"]) == (2, 1)
    assert field.sql("select c::text, n::text, v::text, f::text, j::text from t where id = 1") == [
        ("abc", "1.50", "30 days", "0", '{"a": 1}')
    ]
