"""Read the plan of a query as the server would run it, prepared once and for all values alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg._queries import PostgresQuery
from psycopg.adapt import Transformer

import rowsweep.queue.postgres
from rowsweep.queue.postgres.statements.sql import Statement, load, render

STORES = "rowsweep.queue.postgres.stores"
HOME = Path(rowsweep.queue.postgres.__file__).parent
MODULES = tuple(
    ".".join(("rowsweep.queue.postgres", *path.relative_to(HOME).with_suffix("").parts))
    for path in sorted(HOME.rglob("*.sql"))
    if path.read_text(encoding="utf-8").startswith("-- name: ")
)


@dataclass(frozen=True)
class Scan:
    """One scan of one of our tables: how often it ran and how many rows it threw away in all."""

    node: str
    table: str
    index: str | None
    loops: int
    removed: int


@dataclass(frozen=True)
class Plan:
    """What a statement did when it ran."""

    scans: list[Scan]
    pages: int

    def of(self, table: str) -> list[Scan]:
        """Answer the scans of one table that took part."""
        return [scan for scan in self.scans if scan.table == table and scan.loops > 0]

    def indexes(self, table: str) -> set[str | None]:
        """Answer the indexes by which a table was read; None stands for a scan of the whole table."""
        return {scan.index for scan in self.of(table)}


def statement(store: str, name: str) -> Statement:
    """Answer one of the stores' statements."""
    return load(f"{STORES}.{store}")[name]


@contextmanager
def prepared(
    connection: psycopg.Connection[Any], query: Statement, schema: str, values: Mapping[str, object]
) -> Iterator[list[str]]:
    """Prepare a statement with a plan that fits all values, and answer its parameters' names in order.

    One that the driver never prepares is planned for the values it is run with.
    """
    converted = PostgresQuery(Transformer(connection))
    converted.convert(render(query.text, schema), values)
    connection.execute(f"set plan_cache_mode = force_{'generic' if query.prepare is not False else 'custom'}_plan")
    connection.execute(b"prepare explained as " + converted.query)
    try:
        yield list(converted._order or [])
    finally:
        connection.execute("deallocate explained")


def run_plan(connection: psycopg.Connection[Any], order: list[str], values: Mapping[str, object]) -> Plan:
    """Run the prepared statement, roll it back, and answer what it did."""
    given = sql.SQL(", ").join(sql.Literal(values[name]) for name in order)
    call = sql.SQL("explained({})").format(given) if order else sql.SQL("explained")
    with connection.transaction(force_rollback=True):
        text = sql.SQL("explain (analyze, buffers, format json) execute {}").format(call)
        (answer,) = connection.execute(text)
    root = answer[0][0]["Plan"]
    pages = root.get("Shared Hit Blocks", 0) + root.get("Shared Read Blocks", 0)
    return Plan(list(_scans(root)), pages)


def explain(connection: psycopg.Connection[Any], query: Statement, schema: str, values: Mapping[str, object]) -> Plan:
    """Prepare, run and roll back one statement."""
    with prepared(connection, query, schema, values) as order:
        return run_plan(connection, order, values)


def _scans(node: dict[str, Any]) -> Iterator[Scan]:
    table, index = node.get("Relation Name"), node.get("Index Name")
    if table is not None and "Scan" in node["Node Type"]:
        below = node.get("Plans", [])
        index = index or next((part["Index Name"] for part in below if "Index Name" in part), None)
        removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
        loops = int(node.get("Actual Loops", 0))
        yield Scan(node["Node Type"], table, index, loops, int(removed * loops))
    for part in node.get("Plans", []):
        yield from _scans(part)
