"""`rowsweep sweeps rejected` and `retry-rejected`: the rows that a run set aside."""

from __future__ import annotations

import typer

from rowsweep.cli.commands.ledger import leave_watched, say_launched
from rowsweep.cli.commands.sweeps.flags import RunText, Wait
from rowsweep.cli.session import session_of
from rowsweep.cli.stopping import Signals
from rowsweep.show.tables import sweeps as tables


def rejected(context: typer.Context, run: RunText) -> None:
    """List the rows that a run set aside and that no retry has done since: key, error, instant."""
    from rowsweep.sweeps.launches.gate import retried_run
    from rowsweep.sweeps.poison.rejected import rejected_rows

    session = session_of(context)
    with session.app() as app:
        found = app.run_of(run)
        rows = rejected_rows(app.driver, found.run_id)
        former = retried_run(found.snapshot().options)
    if former is not None:
        session.output.note(f"Run {found.run_id} tries rows again; those left: rowsweep sweeps rejected {former}")
    session.output.table(tables.rejected_table(rows), [{**row, "at": row["at"].isoformat()} for row in rows])


def retry_rejected(context: typer.Context, run: RunText, *, wait: Wait = False) -> None:
    """Launch a run over exactly the rows that a run set aside.

    Workers do the work. Those rows that it does leave the list, those that fail again stay on it.
    """
    session = session_of(context)
    with session.app(declares=True) as app, Signals() as signals:
        last = say_launched(app, app.run_of(run).retry_rejected(), session.output, signals if wait else None)
    leave_watched(last, session.output, signals)
