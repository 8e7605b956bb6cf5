"""Installing the tables, and what they are."""

from __future__ import annotations

import re
import threading
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from rowsweep.errors import InvalidOption, InvariantBroken, SchemaMissing, SchemaOutdated
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.postgres.install import OWNED_TABLES, install, schema_sql, status
from tests.queue.world import new_job

SNAPSHOT = Path(__file__).with_name("schema.txt")


def test_the_schema_equals_its_snapshot(connection: psycopg.Connection[Any], schema: str) -> None:
    """N-025, N-028, S-082, S-083: columns, defaults, keys, checks, indexes and storage settings, to the letter."""
    install(connection)
    assert describe(connection, schema) == SNAPSHOT.read_text(encoding="utf-8")


def test_the_catalog_holds_exactly_the_owned_tables(connection: psycopg.Connection[Any], schema: str) -> None:
    """S-073, S-074: the list and the catalog agree."""
    install(connection)
    rows = connection.execute("select tablename from pg_tables where schemaname = %s", [schema])
    assert {row[0] for row in rows} == set(OWNED_TABLES)


def test_installing_twice_changes_nothing(connection: psycopg.Connection[Any], schema: str) -> None:
    """N-025, S-075: the second install finds nothing to do and keeps the install id."""
    first, before = install(connection), describe(connection, schema)
    second = install(connection)
    assert first == second
    assert second.is_current
    assert isinstance(second.install_id, uuid.UUID)
    assert describe(connection, schema) == before


def test_a_schema_that_is_to_be_the_only_one_is_not_made_beside_another(
    connection: psycopg.Connection[Any], schema: str
) -> None:
    """N-026, N-027: a name typed wrong would be an empty queue of its own; asked for by an install it may be one."""
    first, second = install(connection), f"{schema}_2"
    assert install(connection, schema, is_only=True) == first
    with pytest.raises(InvalidOption, match=f"{second} has none of rowsweep's tables") as refused:
        install(connection, second, is_only=True)
    assert schema in refused.value.cause
    assert f"--schema {second} schema install" in refused.value.fix
    assert not connection.execute("select from pg_namespace where nspname = %s", [second]).fetchall()
    assert install(connection, second).is_current
    connection.execute("set client_min_messages = warning")
    connection.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(second)))


def test_a_database_that_knows_no_encoding_keeps_a_queue(server_dsn: str) -> None:
    """N-026: psycopg answers bytes for text over a connection that has none."""
    name = f"bytes_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(f"create database {name} encoding 'SQL_ASCII' locale 'C' template template0")
        driver = PostgresDriver(make_conninfo(server_dsn, dbname=name))
        try:
            assert driver.install().is_current
            (result,) = driver.stores().jobs.enqueue([new_job("mail", input={"to": "Zoë"})])
            inspection = driver.stores().inspection
            assert inspection is not None
            found = inspection.get(result.id)
            assert found is not None
            assert (found.state, found.input) == ("ready", {"to": "Zoë"})
        finally:
            driver.close()
            connection.execute(f"drop database {name} with (force)")


def test_installers_at_the_same_time_wait_for_each_other(dsn: str) -> None:
    """N-025: all of them succeed and see the same install."""
    found: list[uuid.UUID | None] = []
    threads = [threading.Thread(target=lambda: found.append(install(dsn).install_id)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 4
    assert len(set(found)) == 1


def test_a_named_schema_is_made_whatever_it_is_called(server_dsn: str) -> None:
    """S-072, N-027: mixed case, blanks, quotes and percent signs are all names."""
    name = f'Odd "{uuid.uuid4().hex[:8]}" 100%'
    try:
        assert install(server_dsn, name).is_current
        driver = PostgresDriver(server_dsn, schema=name)
        driver.stores().jobs.enqueue([new_job()])
        assert [stats.ready for stats in driver.stores().jobs.stats()] == [1]
        driver.close()
    finally:
        with psycopg.connect(server_dsn, autocommit=True) as connection:
            connection.execute("set client_min_messages = warning")
            connection.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(name)))


def test_two_installs_in_one_database_do_not_see_each_other(server_dsn: str, schema: str, dsn: str) -> None:
    """N-027: the same names, other rows."""
    twin = f"{schema}_twin"
    try:
        ours, theirs = install(dsn), install(server_dsn, twin)
        assert ours.install_id != theirs.install_id
        here, there = PostgresDriver(dsn), PostgresDriver(server_dsn, schema=twin)
        here.stores().jobs.enqueue([new_job(idempotency_key="one")])
        assert there.stores().jobs.stats() == []
        assert there.stores().jobs.enqueue([new_job(idempotency_key="one")])[0].deduplicated is False
        here.close()
        there.close()
    finally:
        with psycopg.connect(server_dsn, autocommit=True) as connection:
            connection.execute("set client_min_messages = warning")
            connection.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(twin)))


def test_missing_tables_are_refused_with_the_command(dsn: str) -> None:
    """N-026: until they are installed, which the same driver then notices."""
    driver = PostgresDriver(dsn)
    with pytest.raises(SchemaMissing, match="rowsweep schema install"):
        driver.stores().jobs.stats()
    driver.install()
    assert driver.stores().jobs.stats() == []
    driver.close()


def test_a_schema_behind_the_code_is_refused_and_one_ahead_is_fine(
    connection: psycopg.Connection[Any], dsn: str
) -> None:
    """N-026: only the older one is a reason to stop."""
    install(connection)
    driver = PostgresDriver(dsn)
    connection.execute("update x_schema set version = version - 10")
    with pytest.raises(SchemaOutdated, match="rowsweep schema install"):
        driver.ping()
    connection.execute("update x_schema set version = version + 99")
    driver.ping()
    driver.close()


def test_a_migration_applied_with_another_text_is_refused(connection: psycopg.Connection[Any]) -> None:
    """N-025: migrations are never edited, so a checksum that differs is a fault."""
    install(connection)
    connection.execute("update x_schema set checksum = 'other'")
    with pytest.raises(InvariantBroken, match="0001_base"):
        install(connection)


def test_a_failed_install_leaves_nothing(connection: psycopg.Connection[Any], schema: str) -> None:
    """S-076: a migration goes to the server whole, and in one transaction."""
    connection.execute("create table x_job_counters (in_the_way integer)")
    with pytest.raises(psycopg.errors.DuplicateTable):
        install(connection)
    rows = connection.execute("select tablename from pg_tables where schemaname = %s", [schema])
    assert [row[0] for row in rows] == ["x_job_counters"]
    assert "x_jobs" in status(connection).missing_tables


def test_the_printed_schema_can_be_run_as_it_stands(connection: psycopg.Connection[Any], schema: str) -> None:
    """S-017, S-072: what is printed is what is installed."""
    connection.execute(schema_sql(schema))
    printed = describe(connection, schema)
    assert printed == SNAPSHOT.read_text(encoding="utf-8")


def describe(connection: psycopg.Connection[Any], schema: str) -> str:
    """Answer all tables of a schema as text, without its name."""
    columns = connection.execute(
        """select c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
                  || case when a.attnotnull then '' else '?' end
                  || coalesce(' = ' || pg_get_expr(d.adbin, d.adrelid), '')
           from pg_class c
           join pg_namespace n on n.oid = c.relnamespace
           join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
           left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
           where n.nspname = %s and c.relkind = 'r'
           order by c.relname, a.attnum""",
        [schema],
    )
    checks = connection.execute(
        """select c.relname || ': ' || pg_get_constraintdef(k.oid)
           from pg_constraint k join pg_class c on c.oid = k.conrelid join pg_namespace n on n.oid = c.relnamespace
           where n.nspname = %s and k.contype in ('c', 'p', 'u', 'f') order by 1""",
        [schema],
    )
    indexes = connection.execute("select indexdef from pg_indexes where schemaname = %s order by indexname", [schema])
    storage = connection.execute(
        """select c.relname || ': ' || array_to_string(c.reloptions, ', ')
           from pg_class c join pg_namespace n on n.oid = c.relnamespace
           where n.nspname = %s and c.reloptions is not null order by 1""",
        [schema],
    )
    lines = [row[0] for part in (columns, checks, indexes, storage) for row in part]
    return re.sub(rf"\b{schema}\.", "", "\n".join(lines)) + "\n"
