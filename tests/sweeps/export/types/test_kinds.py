"""Domains, arrays, types that are not Postgres's own, and sessions that write values another way."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from rowsweep.errors import InvalidFrame
from tests.sweeps.export.reading import export, transaction

Connection = psycopg.Connection[Any]


def test_a_domain_is_its_base_and_an_array_a_list_of_what_its_element_is(connection: Connection) -> None:
    """N-092: with the precision of the innermost declaration."""
    connection.execute(
        """create domain cents as numeric(10,2) check (value > 0); create domain paid as cents;
           create domain codes as varchar(3)[]; create domain at as timestamptz;
           create table t (id int primary key, a paid, b cents[], c codes, d at, e at[], f codes[])"""
    )
    connection.execute(
        """insert into t values (1, 1.5, '{1.5,null}', '{a,null}', '2024-01-01 00:00+02', '{2024-01-01 00:00+02}',
                                 '{"{a,b}",NULL}')"""
    )
    batch = export(connection, "t")
    instant = pa.timestamp("us", "UTC")
    decimal = pa.decimal128(10, 2)
    wanted = [decimal, pa.list_(decimal), pa.list_(pa.string()), instant, pa.list_(instant), pa.string()]
    assert batch.schema.types[1:] == wanted
    at = datetime(2023, 12, 31, 22, tzinfo=UTC)
    value = list(batch.to_pylist()[0].values())[1:]
    assert value == [Decimal("1.50"), [Decimal("1.50"), None], ["a", None], at, [at], '{"{a,b}",NULL}']


def test_any_other_type_is_its_own_text(connection: Connection) -> None:
    """N-092: enum, composite, a range of one's own, the row type of a table; and arrays of them."""
    connection.execute(
        """create type mood as enum ('calm', 'a "b", c'); create type pair as (n int, s text);
           create type reals as range (subtype = float8);
           create table t (id int primary key, a mood, b pair, c reals, d pg_am, e mood[], f pair[], g reals[])"""
    )
    connection.execute(
        """insert into t values (1, 'a "b", c', '(1,"x ""y"")")', '[0.1,2)', row(1, 'heap', '3', 't'), '{calm,null}',
                                 array['(1,)'::pair, null], array['[1,2)'::reals])"""
    )
    batch = export(connection, "t")
    texts = [pa.string()] * 4 + [pa.list_(pa.string())] * 3
    assert batch.schema.types[1:] == texts
    shown = connection.execute("select a::text, b::text, c::text, d::text from t").fetchall()
    value = list(batch.to_pylist()[0].values())[1:]
    assert value == [*shown[0], ["calm", None], ["(1,)", None], ["[1,2)"]]


@pytest.mark.parametrize(
    ("extension", "value"), [("hstore", '"a"=>"1, \\"2\\"", "b"=>NULL'), ("citext", "Ab"), ("vector", "[1,2.5]")]
)
def test_an_extension_s_type_is_its_own_text(connection: Connection, schema: str, extension: str, value: str) -> None:
    """N-092: also in an array, whatever casts to JSON it has."""
    known = connection.execute("select 1 from pg_available_extensions where name = %s", [extension]).fetchall()
    if not known:
        pytest.skip(f"the server has no {extension}")
    connection.execute(
        sql.SQL("create extension {} schema {}").format(sql.Identifier(extension), sql.Identifier(schema))
    )
    connection.execute(f"create table t (id int primary key, a {extension}, b {extension}[])".encode())
    connection.execute(f"insert into t values (1, %s, array[%s, null]::{extension}[])".encode(), [value, value])
    batch = export(connection, "t")
    assert batch.schema.types[1:] == [pa.string(), pa.list_(pa.string())]
    assert batch.to_pylist() == [{"id": 1, "a": value, "b": [value, None]}]


def test_the_lower_bound_of_an_array_is_lost_and_nothing_else(connection: Connection) -> None:
    """N-092."""
    connection.execute(
        "create table t (id int primary key, a text[]); insert into t values (1, '[0:1]={a,b}'), (2, '{}')"
    )
    assert export(connection, "t").column("a").to_pylist() == [["a", "b"], []]


ODD_SESSION = """
set datestyle = 'SQL, DMY'; set intervalstyle = 'sql_standard'; set timezone = 'Asia/Kathmandu';
set bytea_output = 'escape'; set extra_float_digits = -15; set lc_monetary = 'POSIX'; set client_encoding = 'LATIN1'"""


def test_no_setting_of_the_session_changes_an_answer(connection: Connection, dsn: str) -> None:
    """N-054: DateStyle, IntervalStyle, TimeZone, bytea_output, extra_float_digits, client_encoding."""
    connection.execute(
        """create table t (id int primary key, a date, b timestamptz, c interval, d bytea, e float8, f float4, g text,
                           h timestamptz[], i tstzrange, j float8[], k money, l timestamp, m bytea[], n timetz)"""
    )
    connection.execute(
        """insert into t values (1, '2024-02-01', '2024-02-01 00:00+00', '1 year -2 days', '\\x00ff5c',
           0.1::float8 + 0.2, 0.1, 'é', '{2024-02-01 00:00+00}', '[2024-02-01 00:00+00,)', array[0.1::float8 + 0.2],
           -1234.5, '2024-02-01', array['\\x5c'::bytea], '12:00+02')"""
    )
    plain = export(connection, "t")
    with psycopg.connect(dsn, autocommit=True) as odd:
        odd.execute(ODD_SESSION)
        assert export(odd, "t").to_pylist() == plain.to_pylist()
        with transaction(odd):
            assert odd.execute("show lc_monetary").fetchall() == [("C",)]
    (row,) = plain.to_pylist()
    assert row["e"] == 0.1 + 0.2
    assert row["c"] == "1 year -2 days"
    assert row["i"] == '["2024-02-01 00:00:00+00",)'
    assert row["k"] == "-$1,234.50"
    assert row["g"] == "é"
    assert row["d"] == b"\x00\xff\\"
    assert row["m"] == [b"\\"]


def test_the_row_that_is_named_is_the_one_that_holds_the_value(connection: Connection) -> None:
    """N-092: among many, by a key of two columns."""
    connection.execute("create table t (a int, b text, day date, primary key (a, b))")
    connection.execute("insert into t select i, 'k' || i, '2024-01-01' from generate_series(1, 3000) i")
    connection.execute("update t set day = 'infinity' where a in (1777, 2999)")
    with pytest.raises(InvalidFrame, match=r"Column 'day' \(date\) holds 'infinity' in the row a=1777, b=k1777,"):
        export(connection, "t")


def test_a_refusal_shows_no_value_that_could_be_somebodys(connection: Connection) -> None:
    """N-112, N-092: it is logged and kept in the ledger; column and key say where to look."""
    connection.execute("create table t (id int primary key, notes text[])")
    connection.execute("insert into t values (1, array[array['secret diagnosis']])")
    with pytest.raises(InvalidFrame, match=r"Column 'notes' .* holds a value in the row id=1") as refused:
        export(connection, "t")
    assert "diagnosis" not in str(refused.value) + repr(refused.value.meta)
