"""`rowsweep sweeps rejected` and `retry-rejected`: the rows that a run set aside."""

from __future__ import annotations

import typer

from rowsweep.cli.commands.ledger import leave_watched, say_launched
from rowsweep.cli.everywhere import EPILOG, RunText, Wait
from rowsweep.cli.session import session_of
from rowsweep.cli.stopping import Signals
from rowsweep.show import tables


def add_to(sweeps: typer.Typer) -> None:
    """Add the commands to those about sweeps."""
    sweeps.command("rejected", epilog=EPILOG)(rejected)
    sweeps.command("retry-rejected", epilog=EPILOG)(retry_rejected)


def rejected(context: typer.Context, run: RunText) -> None:
    """List the rows that a run set aside and that are not done since: key, error, instant."""
    from rowsweep.sweeps.poison.rejected import rejected_rows

    session = session_of(context)
    with session.app() as app:
        rows = rejected_rows(app.driver, app.run_of(run).run_id)
    session.output.table(tables.rejected_table(rows), [{**row, "at": row["at"].isoformat()} for row in rows])


def retry_rejected(context: typer.Context, run: RunText, *, wait: Wait = False) -> None:
    """Launch a run over exactly the rows that a run set aside.

    Those that it does leave the list, those that fail again stay on it.
    """
    session = session_of(context)
    with session.app(declares=True) as app, Signals() as signals:
        last = say_launched(app.run_of(run).retry_rejected(), session.output, signals if wait else None)
    leave_watched(last, session.output, signals)
