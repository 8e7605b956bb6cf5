"""Who has written to a table and is open: whatever holds a writer's lock on it, a partition, or its sequence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from rowsweep import embedded
from rowsweep.sweeps.keyset.catalog import Table, find_table
from rowsweep.sweeps.keyset.rows import Rows
from rowsweep.sweeps.late.writers import Writers, find_writers, still_open
from tests.sweeps.field import Field


def table_of(connection: psycopg.Connection, name: str) -> Table:
    return find_table(connection, Rows(name))


def test_readers_and_lockers_are_no_writers_and_writers_of_a_partition_are(field: Field) -> None:
    """N-057: a lock on another table counts for nothing."""
    field.sql("create table orders (id bigserial, day int, primary key (id, day)) partition by range (day)")
    field.sql("create table first partition of orders for values from (0) to (10)")
    field.sql("create table other (id int)")
    field.sql("insert into orders (day) values (1)")
    table = table_of(field.connection, "orders")
    with field.other() as reader, field.other() as elsewhere, field.other() as writer:
        reader.execute("begin; select from orders for update")
        elsewhere.execute("begin; insert into other values (1)")
        assert find_writers(field.connection, table).open == ()
        writer.execute("begin; insert into first (id, day) values (7, 2)")
        found = find_writers(field.connection, table)
        assert len(found.open) == 1
        xid = writer.execute("select pg_current_xact_id()::text::bigint").fetchone()
        assert xid is not None
        assert found.ids == (xid[0],)
        assert Writers.from_json(found.as_json()) == found
        left, seconds = still_open(field.connection, found)
        assert (left, seconds < 60) == (found.open, True)
        writer.rollback()
        assert still_open(field.connection, found)[0] == ()


def test_a_session_s_own_transaction_is_not_waited_for(field: Field) -> None:
    """N-057: it would wait for itself."""
    field.sql("create table orders (id bigint primary key)")
    with field.other() as own:
        own.execute("begin; insert into orders values (1)")
        assert find_writers(own, table_of(own, "orders")).open == ()


@pytest.fixture
def preparing(tmp_path: Path) -> Iterator[str]:
    """A server that prepares transactions."""
    server = embedded.start(tmp_path, settings={"max_prepared_transactions": "2", "fsync": "off"})
    yield server.dsn
    server.leave()


@pytest.mark.slow
def test_a_prepared_transaction_is_a_writer_until_it_ends(preparing: str) -> None:
    """N-057: it has no session, and keeps its locks."""
    with psycopg.connect(preparing, autocommit=True) as connection:
        connection.execute("create table orders (id bigint primary key)")
        table = table_of(connection, "orders")
        with psycopg.connect(preparing, autocommit=True) as writer:
            writer.execute("begin; insert into orders values (1); prepare transaction 'late'")
        found = find_writers(connection, table)
        assert len(found.open) == len(found.ids) == 1
        assert still_open(connection, found)[0] == found.open
        connection.execute("commit prepared 'late'")
        assert still_open(connection, found)[0] == ()
