"""`rowsweep up`: a worker, a scheduler and a relay in one process, until it is told to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rowsweep.cli.commands.outbox import OutboxDsn
from rowsweep.cli.commands.serving.serve import Drain, Pooler, ReadyPort, Serving, serve
from rowsweep.cli.commands.serving.worker import (
    Concurrency,
    Queues,
    Visibility,
    declared_queues,
    worker_options,
)
from rowsweep.cli.everywhere import EPILOG
from rowsweep.cli.session import session_of

if TYPE_CHECKING:
    from rowsweep.app.app import App


def add_to(application: typer.Typer) -> None:
    """Add the command to the application."""
    application.command("up", epilog=EPILOG)(up)


def up(  # noqa: PLR0913 - one parameter a flag
    context: typer.Context,
    *,
    queue: Queues = None,
    concurrency: Concurrency = None,
    drain: Drain = "25s",
    ready_port: ReadyPort = None,
    visibility: Visibility = "30s",
    pooler: Pooler = False,
    outbox_dsn: OutboxDsn = None,
) -> None:
    """Run the jobs and fire the tasks declared here, and publish what is staged in the outbox, in one process.

    Without a DSN it starts the embedded Postgres, tables installed. On SIGTERM or Ctrl-C it dispatches and claims no
    more and lets what runs finish; a second Ctrl-C leaves at once.
    """
    worker_options(queue, concurrency, visibility)  # refused before anything is connected to, or started

    def start(app: App) -> None:
        worker = app.worker(**worker_options(queue or declared_queues(concurrency), concurrency, visibility))
        worker.start()
        app.scheduler(on_dispatched=lambda _: worker.kick()).start()
        app.relay().start()

    how = Serving(pooler=pooler, outbox=outbox_dsn)
    serve(session_of(context), start, drain=drain, ready_port=ready_port, how=how)
