"""`rowsweep sweeps show`, and the verbs that steer a run: `pause`, `resume`, `cancel`, `tune`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from rowsweep.cli.commands.sweeps.flags import BatchRows, HealthText, Rate, Reason, RunText
from rowsweep.cli.session import session_of
from rowsweep.show.plain import snapshot_line, snapshot_text
from rowsweep.show.terminal import SweepView, snapshot_details

if TYPE_CHECKING:
    from rowsweep.sweeps.run import Run


def show(context: typer.Context, run: RunText) -> None:
    """Show one run in full."""
    session = session_of(context)
    with session.app() as app:
        snapshot = app.run_of(run).snapshot()
    session.output.draw(snapshot_details(snapshot), snapshot_text(snapshot), snapshot.as_json())


def pause(context: typer.Context, run: RunText, reason: Reason = None) -> None:
    """Pause a run after the batch in flight."""
    _steer(context, run, "pause", reason)


def resume(context: typer.Context, run: RunText, reason: Reason = None) -> None:
    """Let a paused, failed or cancelled run go on."""
    _steer(context, run, "resume", reason)


def cancel(context: typer.Context, run: RunText, reason: Reason = None) -> None:
    """End a run.

    The batch in flight is rolled back, what is committed stays.
    """
    _steer(context, run, "cancel", reason)


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


def _steer(context: typer.Context, text: str, verb: str, reason: str | None) -> None:
    session = session_of(context)
    with session.app() as app:
        run: Run = app.run_of(text)
        snapshot = getattr(run, verb)(reason)
    session.output.draw(SweepView(snapshot), snapshot_line(snapshot), snapshot.as_json())
