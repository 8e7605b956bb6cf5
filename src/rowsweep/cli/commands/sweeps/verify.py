"""`rowsweep sweeps verify`: what of a run's rows still matches."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from rowsweep.cli.commands.sweeps.flags import RunText
from rowsweep.cli.session import session_of

_EXIT: Final = {True: 0, False: 1, None: 3}

Timeout = Annotated[str, typer.Option(metavar="SPAN", help="The longest that counting may take.")]


def verify(context: typer.Context, run: RunText, *, timeout: Timeout = "5m") -> None:
    """Count what still matches of a run's rows, in one snapshot of the database.

    Exits with 0 where the run is complete, with 1 where rows are due or set aside or a writer is open, and with 3
    where that cannot be told: rows that the sweep did match still.
    """
    session = session_of(context)
    with session.app(declares=True) as app:
        receipt = app.run_of(run).verify(timeout)
    words = f"{receipt.words}\n  fix: {receipt.fix}" if receipt.fix else receipt.words
    session.output.answer(receipt.as_json(), words)
    raise typer.Exit(_EXIT[receipt.is_complete])
