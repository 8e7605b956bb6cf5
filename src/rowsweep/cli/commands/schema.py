"""`rowsweep schema`: install rowsweep's tables, and see what is installed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from rowsweep.cli.everywhere import EPILOG
from rowsweep.cli.session import session_of

if TYPE_CHECKING:
    from rowsweep.app import App

_schema = typer.Typer(no_args_is_help=True, help="Install rowsweep's tables, and see what is installed.")


def add_to(application: typer.Typer) -> None:
    """Add the commands to the application."""
    application.add_typer(_schema, name="schema")


@_schema.command("install", epilog=EPILOG)
def install(context: typer.Context) -> None:
    """Install the tables, or bring them up to this version.

    Run again, it changes nothing.
    """
    session = session_of(context)
    with session.app() as app:
        before = app.schema_status().version
        app.install()
        document, words = _told(app)
    done = "nothing to do" if before == document["version"] else f"installed, from version {before}"
    session.output.answer(document, f"{words}: {done}")


@_schema.command("print", epilog=EPILOG)
def print_(context: typer.Context) -> None:
    """Print the SQL that an install runs, without connecting."""
    from rowsweep.app import schema_sql

    session = session_of(context)
    script = schema_sql(session.everywhere.schema)
    session.output.answer({"sql": script}, script)


@_schema.command("status", epilog=EPILOG)
def status(context: typer.Context) -> None:
    """Say which version is installed.

    Leaves with 1 where an install is due.
    """
    session = session_of(context)
    with session.app() as app:
        document, words = _told(app)
    verdict = "current" if document["is_current"] else "an install is due: rowsweep schema install"
    session.output.answer(document, f"{words}: {verdict}")
    if not document["is_current"]:
        raise typer.Exit(1)


def _told(app: App) -> tuple[dict[str, object], str]:
    status = app.schema_status()
    document = {**asdict(status), "is_current": status.is_current, "place": app.place}
    return document, f"schema {status.schema} at {app.place}, version {status.version} of {status.latest}"
