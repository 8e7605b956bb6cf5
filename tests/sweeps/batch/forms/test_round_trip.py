"""Values of every type go out in a page and come back in a frame as they were, or exactly as they were changed."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.types.json import Jsonb

import rowsweep as rs
from rowsweep.sweeps.batch.forms.frames import column_form
from rowsweep.sweeps.batch.forms.reading import PageRows
from rowsweep.sweeps.batch.forms.writeback import write_back
from rowsweep.sweeps.keyset.catalog import Table, find_table
from rowsweep.sweeps.keyset.statements import Statements

# A json column is compared as text: dicts give back the document as Python writes it, however it was spaced.
NASTY = [
    "",
    " ",
    "\\N",
    "\\.",
    "NULL",
    "null",
    '"',
    '""',
    "'",
    ",",
    "\n",
    "\r",
    "\r\n",
    "\\",
    "a\\",
    "%s",
    "\t",
    "🙂",
    "\ufeff",
    "-",
]
texts = st.one_of(
    st.sampled_from(NASTY),
    st.lists(st.sampled_from(NASTY), max_size=4).map("".join),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12),
)
instants = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001 - made aware where they must be
reals = st.floats(allow_nan=True, allow_infinity=True)
digits = st.decimals(allow_nan=False, allow_infinity=False, places=10, min_value=Decimal(-10) ** 20, max_value=10**20)
documents = st.dictionaries(st.text(string.ascii_letters, max_size=3), st.lists(texts, max_size=2), max_size=2)

TYPES: dict[str, st.SearchStrategy[Any]] = {
    "text": texts,
    "varchar(40)": texts,
    "bool": st.booleans(),
    "int2": st.integers(-(2**15), 2**15 - 1),
    "int4": st.integers(-(2**31), 2**31 - 1),
    "int8": st.integers(-(2**63), 2**63 - 1),
    "float4": st.floats(width=32),
    "float8": reals,
    "numeric": st.one_of(digits, st.just(Decimal("NaN")), st.just(Decimal("1E+50")), st.just(Decimal("1E-50"))),
    "numeric(38,10)": digits,
    "date": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "time": st.times(),
    "timestamp": instants,
    "timestamptz": instants.map(lambda at: at.replace(tzinfo=UTC)),
    "timetz": st.times(timezones=st.timezones().filter(lambda zone: zone.key.startswith("Etc/GMT"))),
    "interval": st.sampled_from(["1 year 2 mons", "1 mon -1 day", "32 days", "-01:02:03.000004", "25:00:00", "0"]),
    "char(8)": st.text(string.ascii_letters + ' ,"', max_size=8),
    "inet": st.ip_addresses(),
    "bytea": st.binary(max_size=8),
    "uuid": st.uuids(),
    "jsonb": documents.map(Jsonb),
    "json": documents.map(json.dumps),
    "text[]": st.lists(st.one_of(texts, st.none()), max_size=3),
    "int8[]": st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.none()), max_size=3),
    "float8[]": st.lists(reals, max_size=3),
    "bool[]": st.lists(st.booleans(), max_size=3),
    "numeric[]": st.lists(digits, max_size=3),
    "bytea[]": st.lists(st.binary(max_size=4), max_size=3),
    "uuid[]": st.lists(st.uuids(), max_size=2),
}
NAMES = [f"c{at}" for at in range(len(TYPES))]


class Bench:
    """A table of every type on one connection, read and written as a batch does."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.stage: tuple[str, ...] | None = None
        self.is_shared = False
        columns = ", ".join(f"{name} {kind}" for name, kind in zip(NAMES, TYPES, strict=True))
        connection.execute(f"create table t (id int primary key, {columns})")
        connection.execute("create table kept (like t)")
        connection.commit()
        self.table: Table = find_table(connection, rs.Rows("t"))
        self.statements = Statements(table=self.table, where=None, bound_params=False, bounded=False)

    def fill(self, rows: list[tuple[Any, ...]]) -> None:
        """Put these rows into the table, and into another to compare with."""
        self.connection.rollback()
        self.stage = None
        self.connection.execute("set local timezone = 'UTC'; set local extra_float_digits = 1")
        marks = sql.SQL(", ").join(sql.SQL("%s::{}").format(sql.SQL(kind)) for kind in TYPES)
        for at, row in enumerate(rows):
            self.connection.execute(sql.SQL("insert into t values ({}, {})").format(at, marks), row)
        self.connection.execute("insert into kept select * from t")

    def reader(self) -> PageRows:
        """Read all of it."""
        return PageRows(
            connection=lambda: self.connection,
            statements=self.statements,
            columns=self.table.columns,
            values={"rs_u0": "1000"},
            started=False,
            lock=False,
        )

    def write(self, answer: Any, reader: PageRows) -> int:
        """Write back what a handler would return."""
        values = {"rs_u0": "1000"}
        held: Any = self
        return write_back(answer, held=held, statements=self.statements, reader=reader, values=values, started=False)

    def differing(self) -> list[tuple[Any, ...]]:
        """Answer the rows that are not as they were put in."""
        same = " and ".join(f"(t.{name}::text) is not distinct from (kept.{name}::text)" for name in NAMES)
        return self.connection.execute(f"select t.id from t join kept using (id) where not ({same})").fetchall()


@pytest.fixture
def bench(dsn: str) -> Iterator[Bench]:
    """A table of every type."""
    with psycopg.connect(dsn) as connection:
        yield Bench(connection)
        connection.rollback()


rows_of_all = st.lists(st.tuples(*(st.one_of(st.none(), values) for values in TYPES.values())), max_size=4)
often = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.mark.slow
@often
@given(rows=rows_of_all)
def test_a_frame_returned_as_it_was_writes_nothing(bench: Bench, rows: list[tuple[Any, ...]]) -> None:
    """N-059, N-064: not one value of any type comes back another one."""
    bench.fill(rows)
    reader = bench.reader()
    assert bench.write(reader.frame(), reader) == 0
    assert bench.differing() == []


@pytest.mark.slow
@often
@given(rows=rows_of_all)
def test_dicts_returned_as_they_were_write_nothing(bench: Bench, rows: list[tuple[Any, ...]]) -> None:
    """S-184, N-064: the values of psycopg are taken back."""
    bench.fill(rows)
    reader = bench.reader()
    assert bench.write(reader.dicts(), reader) == 0
    assert bench.differing() == []


@often
@given(rows=rows_of_all)
def test_values_that_were_changed_arrive_exactly(bench: Bench, rows: list[tuple[Any, ...]]) -> None:
    """N-064: a frame read from one row and written to another gives that row's values."""
    bench.fill([*rows, (None,) * len(TYPES)])
    reader = bench.reader()
    moved = reader.frame().with_columns(pl.col(NAMES).reverse())
    bench.write(moved, reader)
    bench.connection.execute("update kept set id = %s - id", [len(rows)])
    assert bench.differing() == []


@often
@given(rows=rows_of_all)
def test_values_of_dicts_that_were_changed_arrive_exactly(bench: Bench, rows: list[tuple[Any, ...]]) -> None:
    """N-064: the same through dicts."""
    bench.fill([*rows, (None,) * len(TYPES)])
    reader = bench.reader()
    page = reader.dicts()
    bench.write([{**other, "id": row["id"]} for row, other in zip(page, reversed(page), strict=True)], reader)
    bench.connection.execute("update kept set id = %s - id", [len(rows)])
    assert bench.differing() == []


def test_every_type_has_a_form_of_its_own_or_is_text(bench: Bench) -> None:
    """N-059: chosen by the catalog alone."""
    assert {column.type_text for column in bench.table.columns if column_form(column).finish is not None} == {
        "bytea", "text[]", "bigint[]", "double precision[]", "boolean[]",
    }  # fmt: skip
