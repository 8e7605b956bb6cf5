"""`rowsweep worker`: claim and run what is declared here until the process is told to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowsweep.cli.commands.serving.serve import Drain, Pooler, ReadyPort, Serving, serve
from rowsweep.cli.everywhere import EPILOG
from rowsweep.cli.session import session_of

if TYPE_CHECKING:
    from rowsweep.app.app import App
    from rowsweep.cli.session import Session

Queues = Annotated[
    list[str] | None, typer.Option(metavar="Q", help="A queue to claim from (repeatable), else all declared here.")
]
Concurrency = Annotated[
    list[str] | None, typer.Option(metavar="N|Q=N", help="Runs at a time, for each queue or for one (repeatable).")
]
Visibility = Annotated[str, typer.Option(metavar="SPAN", help="How long a claim stands when this process dies.")]


def add_to(application: typer.Typer) -> None:
    """Add the command to the application."""
    application.command("worker", epilog=EPILOG)(worker)


def worker(  # noqa: PLR0913 - one parameter a flag
    context: typer.Context,
    *,
    queue: Queues = None,
    concurrency: Concurrency = None,
    drain: Drain = "25s",
    ready_port: ReadyPort = None,
    visibility: Visibility = "30s",
    pooler: Pooler = False,
) -> None:
    """Claim and run the jobs declared here.

    It logs one line an event. On SIGTERM or Ctrl-C it claims no more and lets what runs finish; a second Ctrl-C
    leaves at once.
    """
    worker_options(queue, concurrency, visibility)  # refused before anything is connected to
    session = session_of(context)

    def start(app: App) -> None:
        warn_undeclared(session)
        app.worker(**worker_options(queue or declared_queues(concurrency), concurrency, visibility)).start()

    serve(
        session,
        start,
        drain=drain,
        ready_port=ready_port,
        how=Serving(pooler=pooler),
    )


def worker_options(queues: list[str] | None, concurrency: list[str] | None, visibility: str) -> dict[str, Any]:
    """Answer a worker's options from its flags; what cannot be read is a usage error, what cannot work is refused."""
    from rowsweep.worker.options import WorkerOptions

    named: dict[str, int] = {}
    general: int | None = None
    for text in concurrency or ():
        queue, is_named, number = text.rpartition("=")
        if not number.isascii() or not number.isdigit() or int(number) < 1:
            raise typer.BadParameter(f"--concurrency takes N or QUEUE=N, N at least 1; got {text!r}")
        if is_named:
            named[queue] = int(number)
        else:
            general = int(number)
    chosen = list(dict.fromkeys(queues or named or ["default"]))
    if general is not None:
        named = {queue: named.get(queue, general) for queue in chosen}
    options: dict[str, Any] = {"queues": chosen, "visibility": visibility}
    options |= {"concurrency": named} if named else {}
    WorkerOptions(**options)
    return options


def declared_queues(concurrency: list[str] | None) -> list[str] | None:
    """Answer the queues of the jobs declared here, unless the flags name some."""
    from rowsweep.jobs.registry import registered_jobs

    if any("=" in text for text in concurrency or ()):
        return None
    return sorted({handle.options.queue for handle in registered_jobs()}) or None


def warn_undeclared(session: Session) -> None:
    """Say where nothing is declared: such a worker claims nothing, and the commonest cause is the wrong folder."""
    from rowsweep.jobs.registry import registered_jobs

    if not registered_jobs():
        session.output.note(
            "Nothing is declared here, so nothing is claimed: --app MODULE, or a folder with backfills/."
        )
