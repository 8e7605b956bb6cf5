"""How the keys of a table are divided: by histogram or sample, in the key's own order, tiling exactly."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from psycopg import sql

import rowsweep as rs
from rowsweep.sweeps.passes.position import KeyRange
from rowsweep.sweeps.setup import set_up
from rowsweep.sweeps.shards.ranges import KeySpace
from tests.sweeps.field import Field
from tests.sweeps.keyset.test_keys import other_collation

ROWS = 20_000
KEYS = {
    "bigint": ("k bigint", "i * 3 - 20000", ["k"]),
    "uuid": ("k uuid", "md5(i::text)::uuid", ["k"]),
    "text": ("k text collate {other}", "(case when i % 2 = 0 then 'é' else 'E' end) || md5(i::text)", ["k"]),
    "bytes": ('k text collate "C"', "md5(i::text) || 'ü,\"()'", ["k"]),
    "timestamps": ("k timestamptz", "timestamptz '2024-01-01' + i * interval '17.000001 s'", ["k"]),
    "numeric": ("k numeric", "i * 1.10", ["k"]),
    "arrays": ("k int[]", "array[i, -i]", ["k"]),
    "composite": ("a text, k int", "'shop ' || i % 5, i", ["a", "k"]),
    "wide": ("a date, b uuid, k int", "date '2024-01-01' + i % 900, md5(i::text)::uuid, i", ["a", "b", "k"]),
}


def made(field: Field, kind: str) -> KeySpace:
    columns, values, key = KEYS[kind]
    columns = columns.format(other=other_collation(field))
    field.sql(f"create table things ({columns}, n int not null default 0, primary key ({', '.join(key)}))")
    field.sql(f"insert into things ({', '.join(key)}) select {values} from generate_series(1, {ROWS}) i")
    return spaced(field, rs.Rows("things"))


def spaced(field: Field, rows: rs.Rows) -> KeySpace:
    with field.connection.transaction():
        return KeySpace.of(set_up(field.connection, rows), rows)


def divided(field: Field, keys: KeySpace, ranges: int) -> list[KeyRange]:
    with field.connection.transaction():
        return keys.divide(field.connection, ranges)


def counted(field: Field, keys: KeySpace, ranges: list[KeyRange]) -> list[int]:
    """Count each range's rows by comparisons of the test's own: a row in no range, or in two, shows in the sum."""
    table = keys.statements.table
    counts = []
    for each in ranges:
        conditions = ["true"]
        for bound, operator in ((each.after, ">"), (each.to, "<=")):
            if bound is not None:
                names = ", ".join(sql.Identifier(name).as_string(None) for name in table.key)
                values = ", ".join(
                    f"{sql.Literal(text).as_string(None)}::{column.type_text}"
                    for text, column in zip(bound, table.key_types, strict=True)
                )
                conditions.append(f"({names}) {operator} ({values})")
        counts.append(field.one(f"select count(*) from things where {' and '.join(conditions)}".replace("%", "%%")))
    return counts


QUICK = ("uuid", "text", "wide")


@pytest.mark.parametrize(
    "kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KEYS]
)
@pytest.mark.parametrize("is_analyzed", [True, False])
def test_ranges_of_any_key_tile_and_have_about_as_many_rows_each(field: Field, kind: str, is_analyzed: bool) -> None:
    """N-087, N-053: by the planner's histogram, and where there is none by sampled keys."""
    keys = made(field, kind)
    if is_analyzed:
        field.sql("analyze things")
    ranges = divided(field, keys, 4)
    counts = counted(field, keys, ranges)
    assert len(ranges) == 4
    assert sum(counts) == ROWS
    assert max(counts) < 2 * ROWS / 4
    with field.connection.transaction():
        assert keys.tile(field.connection, ranges) is True
        assert keys.tile(field.connection, ranges[::-1]) is True


def test_common_values_of_the_first_column_are_not_overlooked(field: Field) -> None:
    """N-087: a histogram of the rest would leave most rows in one range."""
    field.sql("create table things (a int, k int, primary key (a, k))")
    field.sql(f"insert into things select case when i % 10 < 8 then 1 else i end, i from generate_series(1, {ROWS}) i")
    field.sql("analyze things")
    keys = spaced(field, rs.Rows("things"))
    assert max(counted(field, keys, divided(field, keys, 4))) < ROWS / 2


def test_a_stale_histogram_is_not_gone_by(field: Field) -> None:
    """N-087: most rows came after the last analyze."""
    field.sql("create table things (k int primary key)")
    field.sql("alter table things set (autovacuum_enabled = off)")
    field.sql("insert into things select generate_series(1, 1000)")
    field.sql("analyze things")
    field.sql(f"insert into things select generate_series(1001, {ROWS})")
    field.sql("select pg_stat_force_next_flush()")
    keys = spaced(field, rs.Rows("things"))
    assert max(counted(field, keys, divided(field, keys, 4))) < ROWS / 2


def test_partitions_are_divided_as_one(field: Field) -> None:
    """N-050, N-087."""
    field.sql("create table things (k int primary key) partition by range (k)")
    for at in range(4):
        field.sql(f"create table part_{at} partition of things for values from ({at * 5000}) to ({at * 5000 + 5000})")
    field.sql(f"insert into things select generate_series(0, {ROWS - 1})")
    keys = spaced(field, rs.Rows("things"))
    by_sample = counted(field, keys, divided(field, keys, 4))
    field.sql("analyze things")
    by_histogram = counted(field, keys, divided(field, keys, 4))
    assert sum(by_sample) == sum(by_histogram) == ROWS
    assert max(by_sample + by_histogram) < ROWS / 2


@pytest.mark.parametrize(("rows", "expected"), [(0, 1), (1, 1), (2, 2), (5, 5)])
def test_fewer_keys_make_fewer_ranges(field: Field, rows: int, expected: int) -> None:
    """N-087: fewer distinct boundaries mean fewer shards."""
    field.sql("create table things (k int primary key)")
    field.sql(f"insert into things select generate_series(1, {rows})")
    keys = spaced(field, rs.Rows("things"))
    ranges = divided(field, keys, 64)
    assert len(ranges) <= max(expected, 1)
    with field.connection.transaction():
        assert keys.tile(field.connection, ranges) is True


def test_the_last_range_ends_where_the_sweep_does(field: Field) -> None:
    """N-089, N-056: nowhere with `until="end"`, at the highest key there was with `until="start"`."""
    field.sql("create table things (k int primary key)")
    field.sql("insert into things select generate_series(1, 1000)")
    open_ended, bounded = spaced(field, rs.Rows("things")), spaced(field, rs.Rows("things", until="start"))
    assert divided(field, open_ended, 3)[-1].to is None
    ranges = divided(field, bounded, 3)
    assert ranges[-1].to == ("1000",)
    with field.connection.transaction():
        assert bounded.tile(field.connection, ranges) is True
        assert open_ended.tile(field.connection, ranges) is False
        assert bounded.tile(field.connection, divided_at(400, 800)) is False


def divided_at(*bounds: int) -> list[KeyRange]:
    edges: list[Any] = [None, *((str(bound),) for bound in bounds), None]
    return [KeyRange(after=after, to=to) for after, to in pairwise(edges)]


@pytest.mark.parametrize(
    "broken",
    [
        [],
        divided_at(400, 800)[1:],
        divided_at(400, 800)[:-1],
        [*divided_at(400, 800), KeyRange(after=("800",), to=("900",))],
        [KeyRange(after=None, to=("400",)), KeyRange(after=("401",), to=None)],
        [KeyRange(after=None, to=("400",)), KeyRange(after=("399",), to=None)],
        [KeyRange(after=None, to=("400",)), KeyRange(after=("400",), to=("300",)), KeyRange(after=("300",), to=None)],
        [KeyRange(after=None, to=None), KeyRange(after=None, to=None)],
        [KeyRange(after=None, to=("9",)), KeyRange(after=("9",), to=None), KeyRange(after=("9",), to=None)],
    ],
)
def test_ranges_that_leave_out_or_repeat_a_key_do_not_tile(field: Field, broken: list[KeyRange]) -> None:
    """N-087: what `finish` refuses."""
    field.sql("create table things (k int primary key)")
    keys = spaced(field, rs.Rows("things"))
    with field.connection.transaction():
        assert keys.tile(field.connection, divided_at(9, 80, 100)) is True
        assert keys.tile(field.connection, broken) is False


def test_the_middle_is_that_of_the_work(field: Field) -> None:
    """N-087: rows that match weigh more than rows that are passed over; the heaviest range comes first."""
    field.sql("create table things (k int primary key, open bool not null)")
    field.sql(f"insert into things select i, i > {ROWS * 9 // 10} from generate_series(1, {ROWS}) i")
    keys = spaced(field, rs.Rows("things", where="open"))
    ranges = dict(enumerate(divided_at(5_000, 10_000), 1))
    with field.connection.transaction():
        found = keys.middles(field.connection, ranges)
        assert found[0].number == 3
        assert 15_000 < int(found[0].key[0]) < 19_900
        assert 5_000 < found[0].rows < 20_000
        low = next(middle for middle in found if middle.number == 1)
        assert 1_000 < int(low.key[0]) < 4_200


@pytest.mark.parametrize("kind", ["uuid", "text", "wide"])
def test_a_middle_lies_inside_its_range(field: Field, kind: str) -> None:
    """N-053: by the key's own order."""
    keys = made(field, kind)
    ranges = divided(field, keys, 2)
    with field.connection.transaction():
        probed = [keys._halfway(field.connection, at, each, 100) for at, each in enumerate(ranges)]
        for middle in [*keys.middles(field.connection, dict(enumerate(ranges))), *filter(None, probed)]:
            inside = ranges[middle.number]
            assert keys.is_between(field.connection, middle.key, inside.after, inside.to) is True
            assert keys.is_between(field.connection, middle.key, middle.key, inside.to) is False
            assert keys.is_between(field.connection, middle.key, inside.after, middle.key) is False
        assert [middle and middle.rows for middle in probed] == [100, 100]


def test_bounds_are_compared_in_the_columns_own_collation(field: Field) -> None:
    """N-053: of two bounds none is a column, which would bring it along; the database's may order them otherwise."""
    field.sql('create domain code as text collate "POSIX"')
    field.sql('create table things (a code, b name, k text collate "POSIX", primary key (a, b, k))')
    field.sql("insert into things select chr(97 + i), 'b', 'c' from generate_series(0, 25) i")
    keys = spaced(field, rs.Rows("things"))
    assert [column.collation_name for column in keys.statements.table.key_types] == ["POSIX", "C", "POSIX"]
    for statement in (keys.statements.tiling(), keys.statements.ordered(), keys.statements.is_between()):
        text = statement.as_string(field.connection)
        bare = re.findall(
            r'(?:r\.rs_(?:after|to)[02]|%\(rs_m[02]\)s)::"pg_catalog"."text"(?! collate "pg_catalog"."POSIX")', text
        )
        assert bare == []
        assert 'collate "pg_catalog"."POSIX"' in text
    ranges = divided(field, keys, 3)
    with field.connection.transaction():
        assert keys.tile(field.connection, ranges) is True
        assert keys.in_order(field.connection, [each.after for each in ranges[::-1]]) == [2, 1, 0]


def unsampled(field: Field) -> tuple[KeySpace, KeyRange]:
    """Make a table of 1,500 pages, a fiftieth of which is sampled, and find a range of 200 rows without any of them."""
    field.sql("create table things (k int primary key, filler text not null) with (fillfactor = 10)")
    field.sql("insert into things select i, repeat('x', 40) from generate_series(1, 15000) i")
    pages = field.one("select pg_relation_size('things') / 8192")
    percent = max(2.0, 3000 / pages)
    sampled = field.sql(f"select k from things tablesample system ({percent}) repeatable (1) order by k")
    edges = [0, *(k for (k,) in sampled), 15_001]
    before = next(low for low, high in pairwise(edges) if high - low > 200)
    return spaced(field, rs.Rows("things")), KeyRange(after=(str(before),), to=(str(before + 200),))


@pytest.mark.parametrize(("at_least", "has_middle"), [(0, True), (150, True), (200, True), (250, False)])
def test_a_range_of_few_pages_is_halved_although_none_of_them_is_sampled(
    field: Field, at_least: int, has_middle: bool
) -> None:
    """N-087: its next keys are gone over, twice as many as would be worth it at the most."""
    keys, each = unsampled(field)
    with field.connection.transaction():
        assert keys.middles(field.connection, {2: each}) == []
        found = keys.worth_halving(field.connection, {2: each}, at_least)
    assert (found is not None) is has_middle
    if found is not None:
        most = min(2 * max(at_least, 8), 200)
        assert (found.number, found.rows, int(found.key[0])) == (2, most, int((each.after or "0")[0]) + most // 2)


def test_what_the_sample_has_enough_of_is_gone_by_and_costs_no_other_look(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-087: nor does a range of which so much is asked that a sample would show it."""
    keys, each = unsampled(field)
    monkeypatch.setattr(KeySpace, "_halfway", lambda *_: pytest.fail("looked"))
    whole = KeyRange(after=None, to=None)
    with field.connection.transaction():
        found = keys.worth_halving(field.connection, {1: each, 2: whole}, 500)
        assert found is not None
        assert found.number == 2
        assert keys.worth_halving(field.connection, {1: each}, 60_000) is None


def touched(plan: dict[str, Any], table: str) -> int:
    """Count the pages of the table and its indexes that a plan read: those of the catalogs are no part of a pass."""
    inner = sum(touched(node, table) for node in plan.get("Plans", ()))
    return inner or (plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]) * (plan.get("Relation Name") == table)


@pytest.mark.parametrize("is_analyzed", [True, False])
def test_finding_the_bounds_reads_few_pages(field: Field, is_analyzed: bool) -> None:
    """N-087: a sweep with its search reads no more than 1.1 times the pages of one pass."""
    field.sql("create table things (k int primary key, filler text not null)")
    field.sql("alter table things set (autovacuum_enabled = off)")
    field.sql("insert into things select i, repeat('x', 700) from generate_series(1, 20000) i")
    if is_analyzed:
        field.sql("analyze things")
    keys = spaced(field, rs.Rows("things"))
    pages = field.one("select pg_relation_size('things') / 8192")
    statement = keys.statements.bounds_by_histogram(8) if is_analyzed else keys.statements.bounds_by_sample(8)
    values = {"rs_schema": keys.statements.table.schema, "rs_name": "things", "rs_lead": "k", "rs_percent": 2.0}
    explained = (sql.SQL("explain (analyze, buffers, format json) ") + statement).as_string(field.connection)
    plan = field.one(explained, values)[0]["Plan"]
    assert len(divided(field, keys, 8)) == 8
    assert pages > 1_500
    assert 0 < touched(plan, "things") < 0.1 * pages
