"""Every kind of key, swept in every form, gives what one plain statement gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
import psycopg
import pytest

import rowsweep as rs
from rowsweep.jobs.registry import reset_jobs
from tests.sweeps.field import NONE_LATE, NONE_SEEN, Field


@dataclass(frozen=True)
class Kind:
    """A kind of key: what to create first, its columns, and the keys as SQL row expressions."""

    columns: str
    keys: tuple[str, ...]
    first: str = ""

    @property
    def names(self) -> list[str]:
        return [column.split()[0] for column in self.columns.split(", ")]


TEXTS = ("''", "' '", "'a'", "'B'", "'b'", "'Z'", "'ä'", "'z'", "E'a\\nb'", "E'a\\\\b'", "'\\N'", "'\"q\",'", "'%s'",
         "'日本'", "'🙂'", "E'\\t'", "E'\\r'", "'NULL'", "'null'", "E'\\\\.'")  # fmt: skip

KINDS = {
    "bigint at both ends": Kind(
        "k bigint",
        ("-9223372036854775808", "-9223372036854775807", "-1", "0", "1", "9007199254740993", "9223372036854775806",
         "9223372036854775807"),
    ),
    "uuid": Kind("k uuid", tuple(f"md5('{at}')::uuid" for at in range(11))),
    "text under another collation": Kind("k text collate {other}", TEXTS),
    "text under C": Kind('k text collate "C"', TEXTS),
    "text that ignores case": Kind(
        "k citext", ("'a'", "'B'", "'c'", "'D'", "'é'", "'Z'", "'zz'"), first="create extension citext"
    ),
    "timestamptz with microseconds": Kind(
        "k timestamptz",
        ("'2025-01-01 00:00:00.000001Z'", "'2025-01-01 00:00:00.000002Z'", "'2025-01-01 00:00:00Z'",
         "'1883-11-18 12:03:58-05'", "'2025-10-26 01:30:00+02'", "'2025-10-26 01:30:00+01'", "'9999-12-31 23:59:59Z'"),
    ),
    "numeric with many digits": Kind(
        "k numeric",
        ("0", "0.00000000000000000000000000000000000001", "1e60", "-1e60", "1.50", "2.25", "100",
         "123456789012345678901234567890123456789.123456789", "123456789012345678901234567890123456789.123456788"),
    ),
    "numeric(12,3)": Kind("k numeric(12,3)", ("0", "1.5", "2.25", "-999999999.999", "999999999.999", "10")),
    "enum": Kind(
        "k mood",
        ("'sad'", "'ok'", "'Happy day'", "'it''s'"),
        first="create type mood as enum ('sad', 'ok', 'Happy day', 'it''s')",
    ),
    "date": Kind("k date", ("'0001-01-01'", "'1970-01-01'", "'2024-02-29'", "'9999-12-31'")),
    "bytea": Kind("k bytea", ("''", "'\\x00'", "'\\x0001'", "'\\xff'", "'\\x5c78'", "'\\xdeadbeef'")),
    "a domain": Kind(
        "k code",
        ("'A-1'", "'A-2'", "'b-1'", "'b-2'"),
        first="create domain code as text collate \"C\" check (value ~ '-')",
    ),
    "a domain with another collation than its column": Kind(
        "k word collate {other}", TEXTS, first='create domain base as text collate "C"; create domain word as base'
    ),
    "char(n)": Kind("k char(5)", ("'a'", "'ab'", "'B'", "'abcde'", "'  x'")),
    "bit(n)": Kind("k bit(12)", ("B'000000000001'", "B'100000000000'", "B'111111111111'", "B'000000000000'")),
    "boolean": Kind("k boolean", ("true", "false")),
    "real": Kind("k real", ("0.1", "-0.3", "'Infinity'", "'-Infinity'", "1e-30", "16777217")),
    "time": Kind("k time", ("'00:00'", "'12:34:56.000001'", "'23:59:59.999999'")),
    "interval": Kind("k interval", ("'1 day'", "'-3 hours'", "'1 year 2 mons 3 days 04:05:06.789'", "'25 hours'")),
    "inet": Kind("k inet", ("'10.0.0.1'", "'10.0.0.0/8'", "'::1'")),
    "three mixed columns": Kind(
        "a text collate {other}, b timestamptz, c bigint",
        ("'x', '2025-01-01Z', 1", "'x', '2025-01-01Z', 2", "'x', '2025-01-01 00:00:00.000001Z', -5", "'X', 'epoch', 0",
         "'y', 'epoch', 9223372036854775807", "'y', 'epoch', -9223372036854775808", "'', 'epoch', 3"),
    ),
}  # fmt: skip


def made(field: Field, kind: Kind) -> Kind:
    """Make the table `t` of this kind of key, rows in no order."""
    if kind.first:
        field.sql(kind.first)
    columns = kind.columns.format(other=other_collation(field))
    field.sql(
        f"create table t ({columns}, n int not null, hits int not null default 0, "
        f"primary key ({', '.join(kind.names)}))"
    )
    values = ", ".join(f"({key}, {n})" for n, key in enumerate(kind.keys))
    field.sql(f"insert into t ({', '.join(kind.names)}, n) values {values}")
    return kind


def other_collation(field: Field) -> str:
    """Answer a collation that is not C: one that orders otherwise, where the server has such a one."""
    for (quoted,) in field.sql(
        "select quote_ident(collname) from pg_collation where collisdeterministic and collprovider in ('i', 'c', 'b') "
        "and collencoding in (-1, 6) and collname not in ('C', 'POSIX', 'ucs_basic') "
        "order by collname <> 'unicode', collname !~ '^en_US', collname"
    ):
        try:
            if field.one(f"select 'a' < 'B' collate {quoted}"):
                return str(quoted)
        except psycopg.errors.FeatureNotSupported:
            continue
    return '"C.utf8"'


def in_order(field: Field, kind: Kind) -> list[int]:
    """Answer the rows' numbers as Postgres orders their keys."""
    return [n for (n,) in field.sql(f"select n from t order by {', '.join(kind.names)}")]


def declare(form: str, kind: Kind, seen: list[int], rows: rs.Rows, batch_rows: int) -> Any:
    """Declare a sweep that adds 1 to `hits`, in one of the forms."""
    options: dict[str, Any] = {"rows": rows, "batch_rows": batch_rows, "adapt": False}

    def frame(batch: rs.Batch) -> pl.DataFrame:
        seen.extend(batch.frame["n"])
        return batch.frame.select(*kind.names, hits=pl.col("hits") + 1)

    def dicts(batch: rs.Batch) -> list[dict[str, Any]]:
        seen.extend(row["n"] for row in batch.rows)
        return [{**{name: row[name] for name in kind.names}, "hits": row["hits"] + 1} for row in batch.rows]

    def free(batch: rs.Batch) -> None:
        numbers = [row["n"] for row in batch.rows]
        seen.extend(numbers)
        batch.execute("update t set hits = hits + 1 where n = any(%s)", [numbers])

    if form == "set":
        return rs.backfill("count", set={"hits": "hits + 1"}, **options)
    return rs.backfill("count", {"frame": frame, "dicts": dicts, "free": free}[form], **options)


@pytest.mark.parametrize("form", ["set", "frame", "dicts"])
@pytest.mark.parametrize("name", KINDS)
def test_every_row_is_swept_once_in_the_order_of_its_key(field: Field, name: str, form: str) -> None:
    """N-052, N-053, N-054, N-060, N-064, N-065: no value of any key is rounded, missed or met twice."""
    kind = made(field, KINDS[name])
    seen: list[int] = []
    totals = field.sweep(declare(form, kind, seen, rs.Rows("t"), batch_rows=3))
    rows = len(kind.keys)
    assert field.sql("select hits, count(*) from t group by 1") == [(1, rows)]
    assert (totals["rows"], totals["batches"]) == (rows, -(-rows // 3))
    assert form == "set" or seen == in_order(field, kind)


@pytest.mark.parametrize("form", ["set", "frame", "dicts", "free"])
@pytest.mark.parametrize("rows", [0, 1, 14])
def test_any_size_of_batch_and_table_comes_out_even(field: Field, form: str, rows: int) -> None:
    """N-055, S-185: an empty table, one row, and pages that end with the table or before it."""
    kind = made(field, Kind("k bigint", ("0",)))
    field.sql("truncate t")
    field.sql("insert into t select i, i from generate_series(1, %s) i", [rows])
    for times, batch_rows in enumerate((1, 2, 3, 7, 1_000) if form in ("set", "frame") else (3,), start=1):
        reset_jobs()
        totals = field.sweep(declare(form, kind, [], rs.Rows("t"), batch_rows), force=True)
        expected = {"rows": rows, "written": 0 if form == "free" else rows, "batches": -(-rows // batch_rows)}
        assert totals == expected | {"rejected": 0, "remaining": None, "late": NONE_SEEN}
        assert field.one("select count(*) from t where hits = %s", [times]) == rows


@pytest.mark.parametrize("form", ["set", "frame", "dicts", "free"])
def test_only_matching_rows_are_swept_and_sparse_ones_are_found(field: Field, form: str) -> None:
    """N-055, S-191: pages are of keys whatever matches; a page without a match is no batch."""
    kind = made(field, Kind("k bigint", tuple(map(str, range(60)))))
    seen: list[int] = []
    where = "n % 20 = 7 -- every twentieth"
    totals = field.sweep(declare(form, kind, seen, rs.Rows("t", where=where), batch_rows=5))
    assert field.sql("select n from t where hits = 1 order by 1") == [(7,), (27,), (47,)]
    assert (totals["rows"], totals["batches"], totals["remaining"]) == (3, 3, 3)


def test_what_no_longer_matches_is_no_longer_remaining(field: Field) -> None:
    """N-057: `remaining` counts what still matches where the count is cheap."""
    field.orders(40)
    field.sql("update orders set total = 0 where id <= 10")
    sweep = rs.backfill("totals", rows=rs.Rows("orders", where="total is null"), set={"total": "price * qty"})
    assert field.sweep(sweep) == {
        "rows": 30,
        "written": 30,
        "batches": 1,
        "rejected": 0,
        "remaining": 0,
        "late": NONE_LATE,
    }
    assert field.one("select count(*) from orders where total = price * qty") == 30
    assert field.one("select count(*) from orders where total = 0") == 10


def test_a_declared_key_is_swept_by_its_own_order(field: Field) -> None:
    """N-052: another unique not-null key than the primary one; all columns descending is as good."""
    made(field, Kind("k bigint", ("1", "2", "3", "4", "5")))
    field.sql("alter table t add column label text not null default ''; update t set label = 'l' || (10 - k)")
    field.sql("create unique index on t (label desc, n desc)")
    seen: list[int] = []
    kind = Kind("label text, n int", ())
    field.sweep(declare("dicts", kind, seen, rs.Rows("t", key=["label", "n"]), batch_rows=2))
    assert seen == [n for (n,) in field.sql("select n from t order by label, n")]
    assert field.one("select count(*) from t where hits = 1") == 5


NAMES: dict[str, tuple[str | tuple[str, ...], str]] = {
    "mixed case": ("Orders", "Id"),
    "spaces": ("my orders", "the id"),
    "double quotes": ('or"ders', 'i"d'),
    "percent signs": ("100% orders %s %(x)s", "id%"),
    "reserved words": ("select", "from"),
    "a dot": (("or.ders",), "i.d"),
    "braces and backslashes": ("{orders}\\", "{id}"),
    "the package's own words": ("rs_page", "rs_old"),
}


@pytest.mark.parametrize("form", ["set", "frame", "dicts"])
@pytest.mark.parametrize("name", NAMES)
def test_names_that_need_quoting_are_quoted(field: Field, name: str, form: str) -> None:
    """N-049: table, key and other columns, in a schema whose name needs it too."""
    table, key = NAMES[name]
    column = f"{key}, changed"
    parts = table if isinstance(table, tuple) else (table,)
    schema = f"Sch%ema {field.one('select current_schema')}"
    names = [psycopg.sql.Identifier(text) for text in (schema, parts[-1], key, column)]

    def quoted(text: str) -> str:
        return psycopg.sql.SQL(text).format(*names).as_string(field.connection)

    field.sql(quoted("create schema {0}; create table {0}.{1} ({2} bigint primary key, {3} int not null)"))
    try:
        field.sql(quoted("insert into {0}.{1} select i, 0 from generate_series(1, 7) i"))

        def frame(batch: rs.Batch) -> pl.DataFrame:
            return batch.frame.with_columns(pl.col(column) + 1)

        def dicts(batch: rs.Batch) -> list[dict[str, Any]]:
            return [{**row, column: row[column] + 1} for row in batch.rows]

        rows = rs.Rows((schema, parts[-1]), columns=[column], where=quoted("{2} > 0"))
        handlers: dict[str, Callable[[rs.Batch], Any]] = {"frame": frame, "dicts": dicts}
        if form == "set":
            sweep: Any = rs.backfill("names", rows=rows, set={column: quoted("{3} + 1")}, batch_rows=2, adapt=False)
        else:
            sweep = rs.backfill("names", handlers[form], rows=rows, batch_rows=2, adapt=False)
        assert field.sweep(sweep)["rows"] == 7
        assert field.sql(quoted("select {3}, count(*) from {0}.{1} group by 1")) == [(1, 7)]
        assert sweep.preview(3).height == 3
    finally:
        field.sql(quoted("set client_min_messages = warning; drop schema {0} cascade"))


@pytest.mark.parametrize("form", ["set", "frame", "free"])
@pytest.mark.parametrize("how", ["hash (n)", "range (n)"])
def test_a_partitioned_table_is_swept_through_its_root(field: Field, how: str, form: str) -> None:
    """N-050: partitions hold the rows, the root's primary key the order."""
    field.sql(
        f"create table t (k bigint, n int not null, hits int not null default 0, primary key (k, n)) partition by {how}"
    )
    parts = (
        [f"with (modulus 3, remainder {at})" for at in range(3)]
        if how.startswith("hash")
        else ["from (minvalue) to (10)", "from (10) to (20)", "from (20) to (maxvalue)"]
    )
    for at, part in enumerate(parts):
        field.sql(f"create table t{at} partition of t for values {part}")
    field.sql("insert into t select 100 - i, i from generate_series(1, 30) i")
    seen: list[int] = []
    kind = Kind("k bigint, n int", ())
    totals = field.sweep(declare(form, kind, seen, rs.Rows("t"), batch_rows=4))
    assert (totals["rows"], field.one("select count(*) from t where hits = 1")) == (30, 30)
    assert form == "set" or seen == list(range(30, 0, -1))


def test_forms_of_values_that_a_trigger_leaves_in_the_session_reach_no_other_batch(field: Field) -> None:
    """N-054: batches without handlers share a session; a cursor rounded by one would be stuck, or skip rows."""
    field.sql("create table spans (k float8 primary key, n int not null default 0)")
    field.sql("insert into spans select i / 7.0 from generate_series(1, 60) i")
    field.sql(
        "create function rounds() returns trigger language plpgsql as $$ begin "
        "perform set_config('extra_float_digits', '-5', false); return new; end $$"
    )
    field.sql("create trigger rounds before update on spans for each row execute function rounds()")
    sweep = rs.backfill("spans", rows=rs.Rows("spans"), set={"n": "n + 1"}, batch_rows=7, adapt=False)
    assert field.sweep(sweep)["rows"] == 60
    assert field.sql("select n, count(*) from spans group by n") == [(1, 60)]
