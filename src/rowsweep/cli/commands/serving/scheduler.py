"""`rowsweep scheduler`: fire the tasks that are declared here until the process is told to stop."""

from __future__ import annotations

import typer

from rowsweep.cli.commands.serving.serve import Drain, Pooler, ReadyPort, Serving, serve
from rowsweep.cli.everywhere import EPILOG
from rowsweep.cli.session import session_of


def add_to(application: typer.Typer) -> None:
    """Add the command to the application."""
    application.command("scheduler", epilog=EPILOG)(scheduler)


def scheduler(
    context: typer.Context, drain: Drain = "25s", ready_port: ReadyPort = None, pooler: Pooler = False
) -> None:
    """Fire the tasks declared here when they are due.

    Several may run: one of them leads, and another takes over within half a minute of its end.
    """
    how = Serving(pooler=pooler)
    serve(session_of(context), lambda app: app.scheduler().start(), drain=drain, ready_port=ready_port, how=how)
