"""The command line's entry: parse, run one command, and turn refusals into exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from rowsweep import __version__
from rowsweep.cli.commands import doctor, events, ledger, new, outbox, run, schema, tasks
from rowsweep.cli.commands.jobs import command as jobs
from rowsweep.cli.commands.serving import relay, scheduler, up, worker
from rowsweep.cli.commands.sweeps import command as sweeps
from rowsweep.cli.demo import command as demo
from rowsweep.cli.everywhere import Everywhere, asks_for_json, hoisted, places_in
from rowsweep.cli.output import Output
from rowsweep.cli.session import Session
from rowsweep.errors import RowsweepError


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"rowsweep {__version__}")
        raise typer.Exit


application = typer.Typer(
    name="rowsweep",
    help="Sweep large Postgres tables safely: resumable backfills on a durable job system.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for room in (
    demo, run, up, worker, scheduler, relay, ledger, sweeps, jobs, outbox, events, tasks, new, doctor, schema,
):  # fmt: skip
    room.add_to(application)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code.

    0 done, 1 refused or failed, 2 wrong usage, 130 interrupted by Ctrl-C, 143 by SIGTERM.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    _tolerate_narrow_encodings()
    try:
        typer.main.get_command(application).main(hoisted(given), prog_name="rowsweep")
    except RowsweepError as error:
        Output(is_json=asks_for_json(given)).refuse(error, flags=places_in(given))
        sys.exit(1)


@application.callback()
def everywhere(  # noqa: PLR0913 - the flags that every command shares
    context: typer.Context,
    *,
    dsn: Annotated[
        str | None,
        typer.Option(metavar="DSN", help="Where the queue is; else $DATABASE_URL, else the embedded Postgres."),
    ] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="NAME", help="The schema of rowsweep's tables, else the connection's.")
    ] = None,
    app: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE",
            help="What declares the sweeps and jobs (repeatable): a module, a file or a folder; "
            "else app under [tool.rowsweep] in pyproject.toml, else backfills/*.py.",
        ),
    ] = None,
    env: Annotated[
        str | None, typer.Option(metavar="NAME", help="This environment's name, for the gate; else $ROWSWEEP_ENV.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Answer one JSON document on stdout.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Use no colour; so does $NO_COLOR.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback answers it
        bool,
        typer.Option("--version", help="Show the version and leave.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """Sweep large Postgres tables safely: resumable backfills on a durable job system."""
    said = Everywhere(dsn=dsn, schema=schema, apps=tuple(app or ()), env=env, is_json=json, is_coloured=not no_color)
    context.obj = Session(said, Output(is_json=json, is_coloured=not no_color))


def _tolerate_narrow_encodings() -> None:
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
