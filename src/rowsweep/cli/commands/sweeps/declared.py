"""`rowsweep sweeps ls` and `preview`: what is declared here, and what it would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rowsweep.cli.commands.ledger import Kind
from rowsweep.cli.commands.sweeps.flags import Input, Name
from rowsweep.cli.session import read_json, session_of
from rowsweep.errors import RowsweepError, SweepFailed
from rowsweep.show.tables import sweeps as tables

if TYPE_CHECKING:
    import polars as pl

    from rowsweep.app.app import App
    from rowsweep.sweeps.handle import Sweep


Standing = Literal["applied", "pending", "changed", "live"]


def ls(
    context: typer.Context,
    kind: Annotated[Kind | None, typer.Option(help="Only sweeps of this kind.")] = None,
    status: Annotated[Standing | None, typer.Option(help="Only those that stand so here.")] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="How many at most, else all.", min=0)] = None,
) -> None:
    """List the sweeps declared here, and what became of each.

    Each is applied, pending, changed since it was applied, or live.
    """
    from rowsweep.sweeps.registry import registered_sweeps

    session = session_of(context)
    with session.app(declares=True) as app:
        entries = [_declared(app, sweep) for sweep in registered_sweeps() if kind in (None, sweep.sweep_kind)]
    declared = [entry for entry in entries if status in (None, entry["state"])][:limit]
    documents = [{**entry, "last": None if entry["last"] is None else entry["last"].as_json()} for entry in declared]
    session.output.table(tables.sweeps_table(declared), documents)


def _declared(app: App, sweep: Sweep[Any]) -> dict[str, Any]:
    last = next(iter(app.runs(name=sweep.name, limit=1)), None)
    return {**sweep.describe(), **sweep.status_here(), "last": last}


def preview(
    context: typer.Context,
    name: Name,
    rows: Annotated[int, typer.Option(metavar="N", help="How many rows.", min=1)] = 10,
    given: Input = None,
    allow_effects: Annotated[
        bool, typer.Option("--allow-effects", help="Run an at-least-once handler, which no rollback takes back.")
    ] = False,
) -> None:
    """Show the first rows before and after, and roll everything back."""
    from rowsweep.sweeps.registry import get_sweep

    session = session_of(context)
    value = read_json(given, flag="--input")
    with session.app(declares=True, shipped=True):
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
