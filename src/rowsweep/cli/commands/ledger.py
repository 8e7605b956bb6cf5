"""`rowsweep ledger`, `watch` and `board`: what has run here, and what runs now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from rowsweep.cli.everywhere import EPILOG
from rowsweep.cli.following import SECONDS_BETWEEN_LINES, SECONDS_BETWEEN_LOOKS, LineDisplay, display_for
from rowsweep.cli.session import session_of
from rowsweep.cli.stopping import INTERRUPTED, Signals
from rowsweep.errors import RowsweepError, SweepNotFound
from rowsweep.operate.board import take_board
from rowsweep.show.board.views import BoardInTerminal, board_line, board_text
from rowsweep.show.tables import sweeps as tables

if TYPE_CHECKING:
    from rowsweep.app.app import App
    from rowsweep.cli.following import Display
    from rowsweep.cli.output import Output
    from rowsweep.sweeps.run import Run
    from rowsweep.sweeps.snapshot import Snapshot

Status = Literal["running", "paused", "done", "failed", "cancelled"]
Kind = Literal["backfill", "export", "purge"]

_SECONDS_BETWEEN_DOCUMENTS: Final = 1.0
_SECONDS_BETWEEN_BOARDS: Final = 1.0


def add_to(application: typer.Typer) -> None:
    """Add the commands to the application."""
    application.command("ledger", epilog=EPILOG)(ledger)
    application.command("watch", epilog=EPILOG)(watch)
    application.command("board", epilog=EPILOG)(board)


def ledger(
    context: typer.Context,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Only runs of this sweep.")] = None,
    status: Annotated[Status | None, typer.Option(help="Only runs in this state.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only runs of this kind.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="How many at most.", min=0)] = 100,
) -> None:
    """List the runs of sweeps, newest first."""
    session = session_of(context)
    with session.app() as app:
        runs = app.runs(name=name, status=status, kind=kind, limit=limit)
    session.output.table(tables.ledger_table(runs), [run.as_json() for run in runs])


def watch(
    context: typer.Context,
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="A run's id, its unique prefix, or a sweep's name.")
    ] = None,
) -> None:
    """Watch one sweep until it ends or is paused.

    By default that is the newest one at work. Ctrl-C stops the watching only.
    """
    session = session_of(context)
    with session.app() as app, Signals() as signals:
        watched = app.run_of(run if run is not None else _newest(app))
        last = watch_run(watched, session.output, signals)
    if signals.name is not None:
        session.output.note(f"Stopped watching; {last.name} goes on. Watch again: rowsweep watch {last.run_id}")
        raise typer.Exit(INTERRUPTED)


def board(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Show it once in full and leave.")] = False,
) -> None:
    """Watch everything: sweeps, jobs, workers, dead letters, and the schedules declared here.

    On a terminal it is redrawn; a pipe gets a line every few seconds, --json one document. Ctrl-C leaves.
    """
    session = session_of(context)
    output = session.output
    try:
        session.load()
    except RowsweepError as error:
        output.note(f"Schedules are left out: {error.cause}")
    with session.app() as app, Signals() as signals:
        if once or output.is_json:
            taken = take_board(app.driver)
            output.draw(BoardInTerminal(taken), board_text(taken), taken.as_json())
        else:
            _watch_board(app, output, signals)
    if signals.name is not None:
        raise typer.Exit(INTERRUPTED)


def _watch_board(app: App, output: Output, signals: Signals) -> None:
    from rich.live import Live

    taken = take_board(app.driver)
    if not output.is_terminal:
        output.say(board_line(taken))
        while not signals.wait(SECONDS_BETWEEN_LINES):
            taken = take_board(app.driver, taken)
            output.say(board_line(taken))
        return
    with Live(
        BoardInTerminal(taken, note="Ctrl-C leaves"), console=output.console, vertical_overflow="ellipsis"
    ) as live:
        while not signals.wait(_SECONDS_BETWEEN_BOARDS):
            taken = take_board(app.driver, taken)
            live.update(BoardInTerminal(taken, note="Ctrl-C leaves"), refresh=True)


def watch_run(run: Run, output: Output, signals: Signals, *, as_documents: bool = True) -> Snapshot:
    """Show the run until it ends, is paused or a signal comes; answer the last snapshot.

    With --json each look is a document of its own, unless the command answers one document for all it did.
    """
    with _documents(output) if output.is_json and as_documents else display_for(output) as display:
        while True:
            snapshot = run.snapshot()
            display.show(snapshot)
            if not snapshot.is_open or snapshot.words == "paused":
                return snapshot
            if signals.wait(_SECONDS_BETWEEN_DOCUMENTS if output.is_json else SECONDS_BETWEEN_LOOKS):
                return snapshot


def say_launched(app: App, run: Run, output: Output, signals: Signals | None) -> Snapshot | None:
    """Say what was launched; with signals watch it until it ends or one comes, and answer how it stands then."""
    if run.note:
        output.note(run.note)
    if signals is not None:
        if any(waiting.name == run.name for waiting in app.operate.undeclared(())):
            output.note(f"No live worker declares {run.name}: it waits for one (rowsweep worker).")
        return watch_run(run, output, signals)
    words = f"{run.name}: launched as run {run.run_id}. Watch it: rowsweep watch {run.name}"
    output.answer(run.snapshot().as_json(), words)
    return None


def leave_watched(last: Snapshot | None, output: Output, signals: Signals) -> None:
    """Leave with what became of a run that was watched; do nothing where none was."""
    if last is None:
        return
    if signals.name is not None:
        output.note(f"{last.name} goes on without you. Watch it again: rowsweep watch {last.run_id}")
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if last.status == "done" else 1)


def _documents(output: Output) -> Display:
    return _Documents(output)


class _Documents(LineDisplay):
    """Write each snapshot as one JSON document a line."""

    def __init__(self, output: Output) -> None:
        super().__init__(output.say)
        self._output = output

    def show(self, snapshot: Snapshot, note: str | None = None) -> None:  # noqa: ARG002 - a document has no room for it
        """Write the snapshot."""
        self._output.document(snapshot.as_json())


def _newest(app: App) -> str:
    for status in ("running", "paused", None):
        found = app.runs(status=status, limit=1)
        if found:
            return found[0].run_id
    raise SweepNotFound("no sweep has run here yet.", fix="rowsweep sweeps ls")
