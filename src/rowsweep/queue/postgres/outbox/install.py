"""Install the outbox alone, into a database that keeps an application's data and no queue."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from rowsweep.queue.postgres.connections import connect_once
from rowsweep.queue.postgres.place import find_schema
from rowsweep.queue.postgres.statements.cursor import run
from rowsweep.queue.postgres.statements.sql import load, render_script
from rowsweep.queue.postgres.translate import own_errors
from rowsweep.telemetry.redact import redact_dsn

if TYPE_CHECKING:
    from psycopg import Connection

_INSTALL: Final = load("rowsweep.queue.postgres.install")
_PLACES: Final = load("rowsweep.queue.postgres.outbox.places")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxStatus:
    """Say whether a database has an outbox, in which schema it is or would be, and whether a queue is beside it."""

    place: str
    schema: str
    is_installed: bool
    has_queue: bool


def outbox_sql(schema: str | None = None) -> str:
    """Answer the script as it is sent, for a reader; without a schema the search path decides."""
    return f"-- x_outbox alone\n{render_script(_script(), schema)}"


def outbox_status(dsn: str, schema: str | None = None) -> OutboxStatus:
    """Answer what a database has."""
    place = redact_dsn(dsn)
    with connect_once(dsn, place) as connection, own_errors(place):
        return _status(connection, place, schema)


def install_outbox(dsn: str, schema: str | None = None) -> OutboxStatus:
    """Make the outbox where it is missing, under the installers' lock; run again, it changes nothing.

    A named schema is made where it is missing.
    """
    place = redact_dsn(dsn)
    with connect_once(dsn, place) as connection, own_errors(place):
        with connection.transaction():
            run(connection, _INSTALL["lock"].text, {})
            found = _status(connection, place, schema)
            if not found.is_installed:
                if not run(connection, _INSTALL["schema_exists"].text, {"schema": found.schema})[0][0]:
                    connection.execute(sql.SQL("create schema {}").format(sql.Identifier(found.schema)))
                connection.execute(render_script(_script(), found.schema))
        return _status(connection, place, schema)


def _status(connection: Connection[Any], place: str, schema: str | None) -> OutboxStatus:
    rows = run(connection, _PLACES["find"].text, {"schema": schema})
    is_there = bool(rows) and schema in (None, rows[0][0])
    return OutboxStatus(
        place=place,
        schema=rows[0][0] if is_there else schema or find_schema(connection),
        is_installed=is_there,
        has_queue=is_there and rows[0][1],
    )


def _script() -> str:
    return (files(__package__) / "outbox_only.sql").read_text(encoding="utf-8")
