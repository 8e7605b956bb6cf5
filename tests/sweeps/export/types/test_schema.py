"""An export's schema is fixed from the catalog, stored, and compared with the table at each part."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from rowsweep.errors import InvalidDeclaration, InvariantBroken, UnknownSource
from rowsweep.sweeps.export.types.schema import describe
from rowsweep.sweeps.keyset.catalog import find_table
from rowsweep.sweeps.keyset.rows import Rows
from tests.sweeps.export.reading import described, export, read, transaction

Connection = psycopg.Connection[Any]


def test_a_page_of_nulls_and_a_page_of_nothing_have_the_schema_of_the_catalog(connection: Connection) -> None:
    """N-092, N-096: nothing is guessed from values."""
    connection.execute("create table t (id int primary key, a numeric(9,2), b timestamptz, c text[], d bytea, e jsonb)")
    wanted = [pa.int32(), pa.decimal128(9, 2), pa.timestamp("us", "UTC"), pa.list_(pa.string()), pa.binary()]
    nothing = export(connection, "t")
    assert nothing.schema.types == [*wanted, pa.string()]
    assert nothing.num_rows == 0
    connection.execute("insert into t (id) values (1), (2)")
    nulls = export(connection, "t")
    assert nulls.schema == nothing.schema
    assert nulls.to_pylist()[1] == {"id": 2, "a": None, "b": None, "c": None, "d": None, "e": None}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("alter table t add note text", "'note' was added"),
        ("alter table t drop price", "'price' was dropped or renamed"),
        ("alter table t rename price to cost", "'price' was dropped or renamed; 'cost' was added"),
        ("alter table t alter price type numeric(12,3)", "'price' was numeric(10,2) and is numeric(12,3) now"),
        ("alter table t alter price type text", "'price' was numeric(10,2) and is text now"),
        ("alter table t alter tags type int[] using null", "'tags' was text[] and is integer[] now"),
    ],
)
def test_a_column_that_changes_during_the_export_ends_it_by_name(
    connection: Connection, change: str, said: str
) -> None:
    """N-092: the message says which column, and how."""
    connection.execute("create table t (id int primary key, price numeric(10,2), tags text[])")
    schema = described(connection, "t")
    read(connection, schema)
    connection.execute(change)
    with pytest.raises(InvariantBroken) as refused:
        read(connection, schema)
    assert f"{said}." in refused.value.cause
    assert "overwrite=True" in refused.value.fix


def test_columns_that_were_not_named_may_come_and_go(connection: Connection) -> None:
    """N-092: an export of named columns is about these."""
    connection.execute("create table t (id int primary key, price numeric(10,2), tags text[])")
    with transaction(connection):
        schema = describe(connection, find_table(connection, Rows("t")), ["price", "id"])
    connection.execute("alter table t drop tags, add note text")
    assert read(connection, schema).schema.names == ["price", "id"]


def test_a_table_that_is_gone_is_named(connection: Connection) -> None:
    """N-092."""
    connection.execute("create table t (id int primary key)")
    schema = described(connection, "t")
    connection.execute("drop table t")
    with pytest.raises(UnknownSource, match=r"\.t is gone"):
        read(connection, schema)


def test_a_column_that_was_checked_stays_as_it_is_until_the_part_is_read(connection: Connection, dsn: str) -> None:
    """N-092: no retyping comes between the check and the read, so no value is read with another type's eyes."""
    connection.execute("create table t (id int primary key, price numeric(10,2))")
    schema = described(connection, "t")
    with psycopg.connect(dsn, autocommit=True) as other, transaction(connection):
        schema.check(connection)
        other.execute("set lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("alter table t alter price type text")


def test_a_role_that_may_read_columns_only_is_told_what_it_needs(connection: Connection, schema: str) -> None:
    """N-092: without the lock a rewrite of the table could come in between, and leave a part empty."""
    connection.execute("create table t (id int primary key, secret text)")
    stored = described(connection, "t")
    role = sql.Identifier(f"reader_of_{schema}")
    connection.execute(sql.SQL("create role {}").format(role))
    try:
        connection.execute(sql.SQL("grant usage on schema {} to {}").format(sql.Identifier(schema), role))
        connection.execute(sql.SQL("grant select (id) on t to {}").format(role))
        connection.execute(sql.SQL("set role {}").format(role))
        with pytest.raises(UnknownSource, match=r"grant select on") as refused:
            read(connection, stored)
        connection.execute("reset role")
        connection.execute(sql.SQL("grant select on t to {}").format(role))
        connection.execute(sql.SQL("set role {}").format(role))
        assert read(connection, stored).num_rows == 0
    finally:
        connection.execute("reset role")
        connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(role))
    assert refused.value.retry == "terminal"


def test_a_type_is_the_same_however_the_search_path_prints_it(connection: Connection, schema: str) -> None:
    """N-092: what compares is the type, not its name as it shows."""
    connection.execute("create type mood as enum ('calm'); create table t (id int primary key, feels mood)")
    stored = described(connection, "t")
    connection.execute("set search_path = ''")
    assert read(connection, stored).num_rows == 0


def test_an_unknown_column_is_refused_with_the_nearest_one(connection: Connection) -> None:
    """N-114: also where it shall be text."""
    connection.execute("create table t (id int primary key, price numeric(10,2))")
    with pytest.raises(UnknownSource, match="'price'"):
        described(connection, "t", as_text=["prise"])


def test_text_is_not_asked_of_a_column_that_is_not_exported(connection: Connection) -> None:
    """N-114: rather than to do nothing."""
    connection.execute("create table t (id int primary key, price numeric(10,2), till date)")
    with transaction(connection), pytest.raises(InvalidDeclaration, match="'till', which is not exported"):
        describe(connection, find_table(connection, Rows("t")), ["id", "price"], as_text=["till"])


def test_the_manifest_lists_name_type_and_arrow_type(connection: Connection) -> None:
    """N-095."""
    connection.execute("create domain cents as numeric(10,2); create table t (id int primary key, price cents)")
    assert described(connection, "t").as_manifest() == [
        {"name": "id", "type": "integer", "arrow": "int32"},
        {"name": "price", "type": "cents", "arrow": "decimal128(10, 2)"},
    ]
