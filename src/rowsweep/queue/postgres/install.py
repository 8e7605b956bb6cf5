"""Install the tables, or bring them up to this version: the one place that makes any."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from shlex import quote as quoted
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from rowsweep.errors import InvalidOption, InvariantBroken
from rowsweep.queue.postgres.connections import connect_once
from rowsweep.queue.postgres.migrations import latest_version, migrations
from rowsweep.queue.postgres.place import find_schema, versions
from rowsweep.queue.postgres.statements.cursor import run
from rowsweep.queue.postgres.statements.sql import load, render, render_script
from rowsweep.queue.postgres.translate import own_errors
from rowsweep.telemetry.redact import redact_dsn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import Connection
    from psycopg.rows import TupleRow

    from rowsweep.queue.postgres.migrations import Migration

OWNED_TABLES: Final = (
    "x_schema",
    "x_jobs",
    "x_job_claims",
    "x_job_steps",
    "x_backfills",
    "x_outbox",
    "x_scheduler_state",
    "x_scheduler_leader",
    "x_job_leases",
    "x_job_events",
    "x_job_pauses",
    "x_job_workers",
    "x_job_counters",
)
_SQL = load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaStatus:
    """Say what is installed and what this release needs; `version` 0 is nothing."""

    schema: str
    version: int
    latest: int
    install_id: uuid.UUID | None
    pending: tuple[str, ...]
    missing_tables: tuple[str, ...]

    @property
    def is_current(self) -> bool:
        """Say whether an install would find nothing to do."""
        return not self.pending and not self.missing_tables


def install(where: str | Connection[Any], schema: str | None = None, *, is_only: bool = False) -> SchemaStatus:
    """Apply every migration not yet applied, in one transaction under an advisory lock; raises InvariantBroken.

    `where` is a DSN or a connection. Installers that come at the same time wait, then find nothing to do. A named
    schema is made where it is missing. One that `is_only` may have no tables beside those of another schema of the
    database: InvalidOption, which names it.
    """
    with _reached(where) as connection:
        return _install(connection, schema, is_only=is_only)


def status(where: str | Connection[Any], schema: str | None = None) -> SchemaStatus:
    """Answer what is installed in a schema, by default the connection's; `where` is a DSN or a connection."""
    with _reached(where) as connection:
        return _status(connection, schema)


def schema_sql(schema: str | None = None) -> str:
    """Answer the migrations' text as it is sent, for a reader; without a schema the search path decides."""
    parts = (f"-- {m.version:04d}_{m.name}\n{render_script(m.text, schema)}" for m in migrations())
    return "\n".join(parts)


@contextmanager
def _reached(where: str | Connection[Any]) -> Iterator[Connection[Any]]:
    if not isinstance(where, str):
        yield where
        return
    place = redact_dsn(where)
    with connect_once(where, place) as connection, own_errors(place):
        yield connection


def _install(connection: Connection[Any], schema: str | None, *, is_only: bool) -> SchemaStatus:
    with connection.transaction():
        # A role's limit for its everyday statements is not one for these: they wait for other installers, too.
        connection.execute("set local statement_timeout = 0")
        run(connection, _SQL["lock"].text, {})
        name = schema or find_schema(connection)
        applied = versions(connection, name)
        if is_only and not applied:
            _refuse_second(connection, name)
        if schema is not None and not run(connection, _SQL["schema_exists"].text, {"schema": name})[0][0]:
            connection.execute(sql.SQL("create schema {}").format(sql.Identifier(name)))
        _refuse_changed(applied)
        _refuse_outbox_alone(connection, name, applied)
        install_id = applied[0][3] if applied else uuid.uuid4()
        for migration in migrations()[len(applied) :]:
            _apply(connection, migration, name, install_id)
        return _status(connection, name)


def _status(connection: Connection[Any], schema: str | None) -> SchemaStatus:
    name = schema or find_schema(connection)
    applied = versions(connection, name)
    tables = {row[0] for row in run(connection, _SQL["tables"].text, {"schema": name, "tables": list(OWNED_TABLES)})}
    done = {row[0] for row in applied}
    return SchemaStatus(
        schema=name,
        version=max(done, default=0),
        latest=latest_version(),
        install_id=applied[0][3] if applied else None,
        pending=tuple(f"{m.version:04d}_{m.name}" for m in migrations() if m.version not in done),
        missing_tables=tuple(table for table in OWNED_TABLES if table not in tables),
    )


def _apply(connection: Connection[Any], migration: Migration, schema: str, install_id: uuid.UUID) -> None:
    connection.execute(render_script(migration.text, schema))
    values = {
        "version": migration.version,
        "name": migration.name,
        "checksum": migration.checksum,
        "install_id": install_id,
    }
    run(connection, render(_SQL["note"].text, schema), values)


def _refuse_second(connection: Connection[Any], schema: str) -> None:
    """Refuse a schema without tables where another one has some: who names the wrong one would work an empty queue."""
    others = [row[0] for row in run(connection, _SQL["others"].text, {"schema": schema})]
    if others:
        second = f"rowsweep --schema {quoted(schema)} schema install"
        raise InvalidOption(
            f"the schema {schema} has none of rowsweep's tables; in this database {', '.join(others)} has them.",
            fix=f"--schema {quoted(others[0])}, or {second} for a second queue",
            meta={"option": "schema", "schema": schema, "others": others},
        )


def _refuse_outbox_alone(connection: Connection[Any], schema: str, applied: list[TupleRow]) -> None:
    """Refuse a schema that has only an outbox: its rows belong to another database's queue."""
    tables = run(connection, _SQL["tables"].text, {"schema": schema, "tables": ["x_outbox"]})
    if tables and not applied:
        raise InvariantBroken(
            f"the schema {schema} has an outbox of another database's queue (an install with --outbox-only).",
            fix="rowsweep schema install --schema with another name",
            meta={"schema": schema},
        )


def _refuse_changed(applied: list[TupleRow]) -> None:
    """Refuse a database whose applied migrations are not the ones of this release; newer ones are fine."""
    known = {migration.version: migration for migration in migrations()}
    for version, name, checksum, _ in applied:
        if version in known and known[version].checksum != checksum:
            raise InvariantBroken(
                f"migration {version:04d}_{name} was applied with another text than this release has.",
                fix="rowsweep schema status, then install the release that made the tables",
                meta={"version": version, "applied": checksum, "shipped": known[version].checksum},
            )
