"""`rowsweep sweeps`: what is declared here and what became of it, and the verbs that steer a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowsweep.cli.commands import apply, rejected, verify
from rowsweep.cli.commands.ledger import Kind, leave_watched, say_launched, watch
from rowsweep.cli.everywhere import EPILOG, MaxRejected, OnErrorFlag, RunText, Wait
from rowsweep.cli.session import read_json, session_of
from rowsweep.cli.stopping import Signals
from rowsweep.errors import RowsweepError, SweepFailed
from rowsweep.show.plain import snapshot_line, snapshot_text
from rowsweep.show.tables import sweeps as tables
from rowsweep.show.terminal import SweepView, snapshot_details

if TYPE_CHECKING:
    import polars as pl

    from rowsweep.app.app import App
    from rowsweep.sweeps.handle import Sweep
    from rowsweep.sweeps.run import Run

Name = Annotated[str, typer.Argument(metavar="NAME", help="The sweep's name.")]
Input = Annotated[str | None, typer.Option(metavar="JSON", help="The sweep's input.")]
Force = Annotated[bool, typer.Option("--force", help="Run it even where it is applied, or has changed since.")]
BatchRows = Annotated[int | None, typer.Option(metavar="N", help="Rows of the first batches.", min=1)]
Rate = Annotated[str | None, typer.Option(metavar="RATE", help="The most rows in a period, such as 2000/s.")]
HealthText = Annotated[
    str | None,
    typer.Option("--health", metavar="LIMITS", help="on, off, or limits such as replica_lag=30s,vacuum=off."),
]
Reason = Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for the record.")]

Confirm = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE", help="A purge only: the largest share of a table it may remove, such as 0.5.", min=0, max=1
    ),
]

_sweeps = typer.Typer(no_args_is_help=True, help="See what is declared here, preview, launch and steer.")


def add_to(application: typer.Typer) -> None:
    """Add the commands to the application."""
    apply.add_to(_sweeps)
    rejected.add_to(_sweeps)
    verify.add_to(_sweeps)
    _sweeps.command("watch", epilog=EPILOG)(watch)
    application.add_typer(_sweeps, name="sweeps")


@_sweeps.command("ls", epilog=EPILOG)
def ls(
    context: typer.Context, kind: Annotated[Kind | None, typer.Option(help="Only sweeps of this kind.")] = None
) -> None:
    """List the sweeps declared here, and what became of each.

    Each is applied, pending, changed since it was applied, or live.
    """
    from rowsweep.sweeps.registry import registered_sweeps

    session = session_of(context)
    with session.app(declares=True) as app:
        declared = [_declared(app, sweep) for sweep in registered_sweeps() if kind in (None, sweep.sweep_kind)]
    documents = [{**entry, "last": None if entry["last"] is None else entry["last"].as_json()} for entry in declared]
    session.output.table(tables.sweeps_table(declared), documents)


@_sweeps.command("show", epilog=EPILOG)
def show(context: typer.Context, run: RunText) -> None:
    """Show one run in full."""
    session = session_of(context)
    with session.app() as app:
        snapshot = app.run_of(run).snapshot()
    session.output.draw(snapshot_details(snapshot), snapshot_text(snapshot), snapshot.as_json())


@_sweeps.command("preview", epilog=EPILOG)
def preview(
    context: typer.Context,
    name: Name,
    rows: Annotated[int, typer.Option(metavar="N", help="How many rows.", min=1)] = 10,
    given: Annotated[str | None, typer.Option("--input", metavar="JSON", help="The sweep's input.")] = None,
    allow_effects: Annotated[
        bool, typer.Option("--allow-effects", help="Run an at-least-once handler, which no rollback takes back.")
    ] = False,
) -> None:
    """Show the first rows before and after, and roll everything back."""
    from rowsweep.sweeps.registry import get_sweep

    session = session_of(context)
    value = read_json(given, flag="--input")
    with session.app(declares=True):
        frame = _previewed(get_sweep(name), rows, value, allow_effects=allow_effects)
    numeric = [dtype.is_numeric() for dtype in frame.dtypes]
    session.output.table(tables.preview_table(frame.columns, frame.rows(), numeric), frame.to_dicts())


def _previewed(sweep: Sweep[Any], rows: int, value: Any, *, allow_effects: bool) -> pl.DataFrame:
    """Preview, and refuse with the application's own line where its handler raises."""
    from rowsweep.sweeps.blame import place_of

    try:
        return sweep.preview(rows, value, allow_effects=allow_effects)
    except RowsweepError:
        raise
    except Exception as error:
        cause = f"the preview of {sweep.name!r} raised {type(error).__name__}: {error}"
        place = place_of(error)
        fix = "mend the handler and preview again; nothing was changed"
        raise SweepFailed(cause, fix=fix, meta={} if place is None else {"place": place}) from error


@_sweeps.command("launch", epilog=EPILOG)
def launch(  # noqa: PLR0913 - one parameter a flag
    context: typer.Context,
    name: Name,
    *,
    given: Annotated[str | None, typer.Option("--input", metavar="JSON", help="The sweep's input.")] = None,
    force: Force = False,
    batch_rows: BatchRows = None,
    rate: Rate = None,
    confirm: Confirm = None,
    on_error: OnErrorFlag = None,
    max_rejected: MaxRejected = None,
    delay: Annotated[str | None, typer.Option(metavar="SPAN", help="Start it that much later, such as 2h.")] = None,
    wait: Wait = False,
) -> None:
    """Enqueue a sweep for the workers.

    `rowsweep run` works it in its own process instead.
    """
    from rowsweep.sweeps.registry import get_sweep

    session = session_of(context)
    value = read_json(given, flag="--input")
    with session.app(declares=True) as app, Signals() as signals:
        sweep = get_sweep(name)
        more = confirmation(sweep, confirm)
        run = sweep.launch(
            value,
            force=force,
            rate=rate,
            batch_rows=batch_rows,
            delay=delay,
            on_error=on_error,
            max_rejected=max_rejected,
            **more,
        )
        last = say_launched(app, run, session.output, signals if wait else None)
    leave_watched(last, session.output, signals)


@_sweeps.command("pause", epilog=EPILOG)
def pause(context: typer.Context, run: RunText, reason: Reason = None) -> None:
    """Pause a run after the batch in flight."""
    _steer(context, run, "pause", reason)


@_sweeps.command("resume", epilog=EPILOG)
def resume(context: typer.Context, run: RunText, reason: Reason = None) -> None:
    """Let a paused, failed or cancelled run go on."""
    _steer(context, run, "resume", reason)


@_sweeps.command("cancel", epilog=EPILOG)
def cancel(context: typer.Context, run: RunText, reason: Reason = None) -> None:
    """End a run.

    The batch in flight is rolled back, what is committed stays.
    """
    _steer(context, run, "cancel", reason)


@_sweeps.command("tune", epilog=EPILOG)
def tune(
    context: typer.Context, run: RunText, rate: Rate = None, batch_rows: BatchRows = None, health: HealthText = None
) -> None:
    """Change how fast a live run goes; felt in its next batch.

    --rate none lifts the limit. --health replica_lag=30s,vacuum=off changes limits, off and on the whole.
    """
    if rate is None and batch_rows is None and health is None:
        raise typer.BadParameter("give what is to change: --rate, --batch-rows or --health")
    session = session_of(context)
    with session.app() as app:
        snapshot = app.run_of(run).tune(rate=rate, batch_rows=batch_rows, health=health_asked(health))
    session.output.draw(SweepView(snapshot), snapshot_line(snapshot), snapshot.as_json())


def health_asked(text: str | None) -> Any:
    """Answer what `tune()` is given for --health: on, off, or limits by signal."""
    if text in (None, "on", "off"):
        return text
    pairs = [pair.partition("=") for pair in str(text).split(",")]
    if not all(found and name.strip() and limit.strip() for name, found, limit in pairs):
        raise typer.BadParameter("on, off, or SIGNAL=LIMIT[,SIGNAL=LIMIT…].", param_hint="--health")
    return {name.strip(): _number_in(limit.strip()) for name, _, limit in pairs}


def _number_in(text: str) -> str | float:
    """Answer a number where the text is one."""
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return text


def confirmation(sweep: Sweep[Any], confirm: float | None) -> dict[str, Any]:
    """Answer what `launch()` is given for --confirm; refused where the sweep is no purge."""
    if confirm is None:
        return {}
    if sweep.sweep_kind != "purge":
        raise typer.BadParameter(f"{sweep.name} is no purge.", param_hint="--confirm")
    return {"confirm": confirm}


def _steer(context: typer.Context, text: str, verb: str, reason: str | None) -> None:
    session = session_of(context)
    with session.app() as app:
        run: Run = app.run_of(text)
        snapshot = getattr(run, verb)(reason)
    session.output.draw(SweepView(snapshot), snapshot_line(snapshot), snapshot.as_json())


def _declared(app: App, sweep: Sweep[Any]) -> dict[str, Any]:
    last = next(iter(app.runs(name=sweep.name, limit=1)), None)
    return {**sweep.describe(), **sweep.status_here(), "last": last}
