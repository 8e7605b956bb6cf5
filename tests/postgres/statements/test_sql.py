"""Every statement of the driver, as text and as Postgres takes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import psycopg
import pytest
from psycopg._queries import PostgresQuery
from psycopg.adapt import Transformer

from rowsweep.queue.postgres.migrations import migrations
from rowsweep.queue.postgres.statements.sql import Statement, load, render
from rowsweep.queue.records import Job
from rowsweep.queue.stores.ledger import Backfill
from rowsweep.queue.stores.steps import Step
from tests.places import queue_schema
from tests.postgres.plans.explain import MODULES, STORES

NAMED = {f"{module}.{name}": query for module in MODULES for name, query in load(module).items()}
ALL = [pytest.param(query, id=name) for name, query in NAMED.items()]
PREPARABLE = [pytest.param(query, id=name) for name, query in NAMED.items() if not query.text.startswith("copy ")]
WHOLE_JOBS = (
    ("jobs", "claim"),
    ("jobs", "claim_lapsed"),
    ("inspection", "get"),
    ("inspection", "list"),
    ("inspection", "dead_letters"),
    ("steering", "cancel"),
    ("steering", "requeue"),
    ("steering", "promote"),
    ("inspection", "list_before"),
)
LAST_LIST = re.compile(r"(?:\bselect|\breturning)\s+((?:\w\.\w+,\s*)+\w\.\w+)")


class AnyValue(dict[str, object]):
    """Answer null for whatever value is asked."""

    def __missing__(self, key: str) -> None:
        return None


@pytest.fixture(scope="module")
def tables(server_dsn: str) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """A schema with the tables, and a connection in it."""
    with queue_schema(server_dsn) as found:
        yield found


@pytest.mark.parametrize("query", PREPARABLE)
def test_every_statement_can_be_prepared(tables: tuple[str, psycopg.Connection[Any]], query: Statement) -> None:
    """S-017, S-437: the server parses and plans each one against the real tables."""
    schema, connection = tables
    names = set(re.findall(r"%\((\w+)\)s", query.text))
    converted = PostgresQuery(Transformer(connection))
    converted.convert(render(query.text, schema), dict.fromkeys(names))
    connection.execute(b"prepare checked as " + converted.query)
    connection.execute("deallocate checked")


@pytest.mark.parametrize("query", ALL)
def test_no_statement_lists_its_columns_by_a_star(query: Statement) -> None:
    """S-084: every read lists its columns, whatever the case of the letters."""
    assert not re.search(r"\b(select|returning)\s+(\w+\.)?\*", query.text, re.IGNORECASE)


@pytest.mark.parametrize("query", ALL)
def test_only_statements_that_write_or_lock_are_never_repeated(query: Statement) -> None:
    """N-024: reads may be repeated, and nothing else."""
    writes = re.search(r"\binsert into\b|\bupdate\b|\bdelete from\b|\bcopy\b", query.text)
    assert query.repeatable is (writes is None)


@pytest.mark.parametrize(("store", "name"), WHOLE_JOBS)
def test_whole_jobs_are_listed_in_the_record_s_order(store: str, name: str) -> None:
    """S-086: the columns are the record's fields, in their order, in every statement about whole jobs."""
    wanted = [field.name for field in fields(Job)]
    lists = [_columns(found) for found in LAST_LIST.findall(load(f"{STORES}.{store}")[name].text)]
    whole = [columns for columns in lists if len(columns) > 10]
    assert whole
    assert all(columns[: len(wanted)] == wanted for columns in whole)


def test_steps_and_ledger_rows_are_listed_in_their_record_s_order() -> None:
    """S-086, S-162: a record cannot be filled from the wrong column."""
    step = [field.name for field in fields(Step)]
    for name in ("get", "list", "put", "sleep", "wait"):
        assert _columns(LAST_LIST.findall(load(f"{STORES}.steps")[name].text)[-1]) == step
    row = [field.name for field in fields(Backfill)][:27]
    for name in ("get", "list"):
        assert _columns(LAST_LIST.findall(load(f"{STORES}.ledger.store")[name].text)[0])[:27] == row


def test_statements_have_the_names_of_the_stores_methods() -> None:
    """S-087: one name for the method and its statement."""
    assert {"enqueue", "find_live_by_key", "claim", "settle", "renew", "record_progress", "stats"} <= set(
        load(f"{STORES}.jobs")
    )
    assert {"get", "list", "put", "delete"} <= set(load(f"{STORES}.steps"))
    assert {"publish", "find", "list", "purge_expired", "now"} <= set(load(f"{STORES}.events"))
    assert {"start", "progress", "finish"} <= set(load(f"{STORES}.ledger.store"))
    assert {"requeue", "cancel", "remove", "promote", "requeue_many", "remove_many", "promote_many"} <= set(
        load(f"{STORES}.steering")
    )


def test_a_schema_s_name_is_quoted_and_cannot_be_taken_for_a_value() -> None:
    """N-027: a name with quotes and percent signs is only a name."""
    assert render("select from /* schema */x_jobs", 'a"b%(c)s') == 'select from "a""b%%(c)s".x_jobs'


def test_migrations_are_numbered_without_a_gap() -> None:
    """N-025: the numbers are the order."""
    assert [migration.version for migration in migrations()] == list(range(1, len(migrations()) + 1))


def _columns(found: str) -> list[str]:
    return [part.strip().partition(".")[2] for part in found.split(",")]
