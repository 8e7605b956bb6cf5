"""`rowsweep schema`: install rowsweep's tables, and see what is installed."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from rowsweep.cli.everywhere import EPILOG
from rowsweep.cli.session import session_of

if TYPE_CHECKING:
    from rowsweep.app.app import App
    from rowsweep.cli.session import Session

OutboxOnly = Annotated[
    bool,
    typer.Option("--outbox-only", help="x_outbox alone, for a database with an application's data and no queue."),
]
_schema = typer.Typer(no_args_is_help=True, help="Install rowsweep's tables, and see what is installed.")


def add_to(application: typer.Typer) -> None:
    """Add the commands to the application."""
    application.add_typer(_schema, name="schema")


@_schema.command("install", epilog=EPILOG)
def install(context: typer.Context, outbox_only: OutboxOnly = False) -> None:
    """Install the tables, or bring them up to this version.

    Run again, it changes nothing.
    """
    from rowsweep.app.connecting import another_schema

    session = session_of(context)
    if outbox_only:
        _tell_outbox(session, is_asked_to_install=True)
        return
    with another_schema(), session.app() as app:
        before = app.schema_status().version
        app.install()
        document, words = _told(app)
    done = "nothing to do" if before == document["version"] else f"installed, from version {before}"
    session.output.answer(document, f"{words}: {done}")


@_schema.command("print", epilog=EPILOG)
def print_(context: typer.Context, outbox_only: OutboxOnly = False) -> None:
    """Print the SQL that an install runs, without connecting."""
    from rowsweep.app.verbs import schema_sql

    session = session_of(context)
    script = schema_sql(session.everywhere.schema, outbox_only=outbox_only)
    session.output.answer({"sql": script}, script)


@_schema.command("status", epilog=EPILOG)
def status(context: typer.Context, outbox_only: OutboxOnly = False) -> None:
    """Say which version is installed.

    Leaves with 1 where an install is due.
    """
    session = session_of(context)
    if outbox_only:
        _tell_outbox(session, is_asked_to_install=False)
        return
    with session.app() as app:
        document, words = _told(app)
    verdict = "current" if document["is_current"] else "an install is due: rowsweep schema install"
    session.output.answer(document, f"{words}: {verdict}")
    if not document["is_current"]:
        raise typer.Exit(1)


def _tell_outbox(session: Session, *, is_asked_to_install: bool) -> None:
    """Look for the outbox of the database named, make it where that is asked, and say what is there."""
    from rowsweep.app.verbs import outbox_schema

    dsn = session.everywhere.dsn or os.environ.get("DATABASE_URL")
    if dsn is None:
        raise typer.BadParameter("--outbox-only takes --dsn, or $DATABASE_URL: the application's own database")
    found = outbox_schema(dsn, session.everywhere.schema, install=is_asked_to_install)
    words = "x_outbox is there" if found.is_installed else "an install is due: rowsweep schema install --outbox-only"
    session.output.answer(asdict(found), f"schema {found.schema} at {found.place}: {words}")
    if not found.is_installed:
        raise typer.Exit(1)


def _told(app: App) -> tuple[dict[str, object], str]:
    status = app.schema_status()
    document = {**asdict(status), "is_current": status.is_current, "place": app.place}
    return document, f"schema {status.schema} at {app.place}, version {status.version} of {status.latest}"
