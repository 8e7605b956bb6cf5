"""Values of every type leave as they are: compared with what Postgres and psycopg say of them."""

from __future__ import annotations

import json
import math
import string
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb
from pyarrow import feather, parquet

from rowsweep.sweeps.export.formats.format import as_format
from tests.sweeps.export.reading import SETTINGS, export, written

Connection = psycopg.Connection[Any]
NASTY = [
    "", " ", "\\N", "\\.", "NULL", "null", '"', '""', "\\", '\\"', ",", "(", ")", "(,)", "\n", "\r\n", "\t", "[[", "{}",
    "🙂", "\ufeff", "\u0085", "-", "%s", "\x01\x1f\x7f",
]  # fmt: skip
texts = st.one_of(
    st.sampled_from(NASTY),
    st.lists(st.sampled_from(NASTY), max_size=4).map("".join),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12),
)


def reals(width: Literal[32, 64]) -> st.SearchStrategy[float]:
    """Answer floats with one NaN, which has no sign."""
    return st.floats(width=width).map(lambda real: math.nan if math.isnan(real) else real)


instants = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999))  # noqa: DTZ001
digits = st.decimals(allow_nan=False, places=10, min_value=-(10**27), max_value=10**27)
digits_60 = st.integers(-(10**60) + 1, 10**60 - 1).map(lambda n: Decimal(f"{n}e-5"))
documents = st.dictionaries(st.text(string.ascii_letters, max_size=3), st.lists(texts, max_size=2), max_size=2)
aware = instants.map(lambda at: at.replace(tzinfo=UTC))

TYPES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int2": st.integers(-(2**15), 2**15 - 1),
    "int4": st.integers(-(2**31), 2**31 - 1),
    "int8": st.integers(-(2**63), 2**63 - 1),
    "oid": st.integers(0, 2**32 - 1),
    "float4": reals(32),
    "float8": reals(64),
    "numeric": st.one_of(digits, st.sampled_from([Decimal("NaN"), Decimal("Infinity"), Decimal("1E-50")])),
    "numeric(38,10)": digits,
    "numeric(60,5)": digits_60,
    "date": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "time": st.times(),
    "timestamp": instants,
    "timestamptz": aware,
    "text": texts,
    "varchar(40)": texts.map(lambda text: text[:40]),
    "char(8)": st.text(string.ascii_letters + ' ,"\\', max_size=8),
    "bytea": st.binary(max_size=8),
    "uuid": st.uuids(),
    "jsonb": documents.map(Jsonb),
    "interval": st.sampled_from(
        ["1 year 2 mons", "1 mon -1 day", "-01:02:03.000004", "25:00:00", "0", "-178000000 years"]
    ),
    "inet": st.ip_addresses(),
    "mood": st.sampled_from(["calm", 'so "so", ', ""]),
    "pair": st.sampled_from(['(1,"a b")', "(,)", '(2,"""")']),
}
LISTED = [
    "bool", "int8", "float4", "float8", "numeric(38,10)", "numeric(60,5)", "date", "time", "timestamptz", "text",
    "char(8)", "bytea", "jsonb", "inet", "mood", "pair",
]  # fmt: skip


def column_of(kind: str) -> st.SearchStrategy[Any]:
    """Answer values of a type, of an array of it, and nulls."""
    if kind.endswith("[]"):
        return st.one_of(st.none(), st.lists(st.one_of(st.none(), TYPES[kind[:-2]]), max_size=3))
    return st.one_of(st.none(), TYPES[kind])


AS_TEXT = {"mood", "pair", "inet", "uuid", "jsonb", "interval", "numeric", "char(8)"}
KINDS = [*TYPES, *(f"{kind}[]" for kind in LISTED)]
table_rows = st.lists(st.tuples(*map(column_of, KINDS)), min_size=1, max_size=6)


@pytest.fixture
def table(connection: Connection) -> Connection:
    """A table with a column of every type, and of arrays of them."""
    connection.execute("create type mood as enum ('calm', 'so \"so\", ', ''); create type pair as (a int, b text)")
    columns = ", ".join(f'"{kind}" {kind}' for kind in KINDS)
    connection.execute(f"create table t (id int primary key, {columns})".encode())
    return connection


def fill(connection: Connection, rows: list[tuple[Any, ...]], *, single: str) -> list[tuple[Any, ...]]:
    """Store rows, and answer them as psycopg reads them; `single` is as what it reads reals of single precision."""
    connection.execute("truncate t")
    places = ", ".join(f"%s::{kind}" for kind in KINDS)
    with connection.cursor() as cursor:
        cursor.executemany(f"insert into t values (%s, {places})".encode(), [(at, *row) for at, row in enumerate(rows)])
    for name, value in SETTINGS.items():
        connection.execute("select set_config(%s, %s, false)", [name, value])
    selected = ", ".join(said(kind).replace("single", single) for kind in KINDS)
    return connection.execute(f"select {selected} from t order by id".encode()).fetchall()


def said(kind: str) -> str:
    """Answer the SQL of what Postgres says of a column: its own text, by concat(), of what has no type in a file."""
    own = f'"{kind}"'
    if kind.removesuffix("[]") == "float4":
        return f"{own}::{kind.replace('float4', 'single')}"
    if kind.removesuffix("[]") not in AS_TEXT:
        return own
    if kind.endswith("[]"):
        element = f"case when {own}[i] is distinct from null then concat({own}[i]) end"
        return f"case when {own} is not null then array(select {element} from generate_subscripts({own}, 1) i) end"
    return f"case when {own} is distinct from null then concat({own}) end"


def same(value: Any) -> Any:
    """Answer a value by which equal ones are the same: a NaN by its name, a zero with its sign, a decimal's digits."""
    if isinstance(value, list):
        return [same(one) for one in value]
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, datetime):
        return (value.replace(tzinfo=None), value.utcoffset())
    return format(value, "f") if isinstance(value, Decimal) else value


def differing(found: list[list[Any]], wanted: list[list[Any]]) -> list[tuple[str, Any, Any]]:
    """Answer the columns whose values differ, with both values."""
    assert len(found) == len(wanted)
    pairs = (
        (kind, one, other)
        for a, b in zip(found, wanted, strict=True)
        for kind, one, other in zip(KINDS, a, b, strict=True)
    )
    return [pair for pair in pairs if pair[1] != pair[2]]


@settings(
    max_examples=12,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rows=table_rows)
def test_any_value_of_any_type_is_the_same_in_parquet_and_arrow(table: Connection, rows: list[tuple[Any, ...]]) -> None:
    """N-092: NULL, both ends, NaN, infinities, negative zero, blanks, quotes, lines, elements that are null."""
    wanted = [same(list(row)) for row in fill(table, rows, single="float8")]
    batch = export(table, "t")
    assert differing([same(list(row.values())[1:]) for row in batch.to_pylist()], wanted) == []
    for name, back in (("parquet", parquet.read_table), ("arrow", feather.read_table)):
        again = back(pa.BufferReader(written(as_format(name), batch)))
        assert differing([same(list(row.values())[1:]) for row in again.to_pylist()], wanted) == []


@settings(
    max_examples=12,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rows=table_rows)
def test_any_value_of_any_type_is_the_same_in_ndjson(table: Connection, rows: list[tuple[Any, ...]]) -> None:
    """D-7: its JSON says the same as the value."""
    wanted = [in_json(list(row)) for row in fill(table, rows, single="float4")]
    lines = written(as_format("ndjson"), export(table, "t")).split(b"\n")[:-1]
    assert differing([as_read(list(json.loads(line).values())[1:]) for line in lines], wanted) == []


@settings(
    max_examples=12,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rows=table_rows)
def test_any_value_that_is_no_array_comes_back_from_csv_by_copy(table: Connection, rows: list[tuple[Any, ...]]) -> None:
    """D-7: byte for byte, as Postgres stores it."""
    fill(table, rows, single="float4")
    names = ["id", *TYPES]
    listed = ", ".join(f'"{name}"' for name in names)
    data = written(as_format("csv"), export(table, "t").select(names))
    table.execute(f"create temp table back as select {listed} from t where false".encode())
    with table.cursor().copy("copy back from stdin (format csv, header)") as copy:
        copy.write(data)
    both = f"from (select {listed} from t) t full join back on t.id = back.id"
    differing = table.execute(f"select t.*, back.* {both} where record_image_ne(t, back)".encode()).fetchall()
    table.execute("drop table back")
    assert differing == []


def in_json(value: Any) -> Any:
    """Answer what JSON holds for a value, as docs/types.md says."""
    if isinstance(value, list):
        return [in_json(one) for one in value]
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(Decimal(value))
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return as_read(value) if not hasattr(value, "isoformat") else value.isoformat(timespec="microseconds")


def as_read(value: Any) -> Any:
    """Answer what was read with the sign of its zero, decimals as their digits."""
    if isinstance(value, list):
        return [as_read(one) for one in value]
    return repr(value) if isinstance(value, float) else format(value, "f") if isinstance(value, Decimal) else value
