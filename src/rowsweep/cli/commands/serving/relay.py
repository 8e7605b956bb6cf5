"""`rowsweep relay`: publish what is staged in an outbox until the process is told to stop."""

from __future__ import annotations

import typer

from rowsweep.cli.commands.outbox import OutboxDsn
from rowsweep.cli.commands.serving.serve import Drain, Pooler, ReadyPort, Serving, serve
from rowsweep.cli.everywhere import EPILOG
from rowsweep.cli.session import session_of


def add_to(application: typer.Typer) -> None:
    """Add the command to the application."""
    application.command("relay", epilog=EPILOG)(relay)


def relay(
    context: typer.Context,
    outbox_dsn: OutboxDsn = None,
    drain: Drain = "25s",
    ready_port: ReadyPort = None,
    pooler: Pooler = False,
) -> None:
    """Publish the jobs that are staged in an outbox into the queue.

    Several may run. It imports nothing of the application. On SIGTERM or Ctrl-C the pass under way is finished.
    """
    how = Serving(declares=False, pooler=pooler, outbox=outbox_dsn)
    serve(session_of(context), lambda app: app.relay().start(), drain=drain, ready_port=ready_port, how=how)
