"""`rowsweep sweeps launch`: enqueue a sweep for the workers."""

from __future__ import annotations

from typing import Annotated

import typer

from rowsweep.cli.commands.ledger import leave_watched, say_launched
from rowsweep.cli.commands.sweeps.flags import (
    BatchRows,
    Confirm,
    Force,
    Input,
    MaxRejected,
    Name,
    OnErrorFlag,
    Rate,
    Wait,
    confirmation,
)
from rowsweep.cli.session import read_json, session_of
from rowsweep.cli.stopping import Signals


def launch(  # noqa: PLR0913 - one parameter a flag
    context: typer.Context,
    name: Name,
    *,
    given: Input = None,
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
    with session.app(declares=True, shipped=True) as app, Signals() as signals:
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
