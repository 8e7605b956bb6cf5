"""`rowsweep doctor`: look at everything, and say what is wrong and what to do about it."""

from __future__ import annotations

import typer

from rowsweep.cli.commands.outbox import OutboxDsn
from rowsweep.cli.everywhere import EPILOG
from rowsweep.cli.session import session_of
from rowsweep.errors import DriverUnavailable


def add_to(application: typer.Typer) -> None:
    """Add the command to the application."""
    application.command("doctor", epilog=EPILOG)(doctor)


def doctor(context: typer.Context, outbox_dsn: OutboxDsn = None) -> None:
    """Look at the server, the schema, the workers and what waits for them.

    Each finding says how it is and what to do. Leaves with 1 where there is something to do.
    """
    from rowsweep.clock import SystemClock
    from rowsweep.operate.health.examine import unreachable
    from rowsweep.show.tables.health import HealthView, health_text

    session = session_of(context)
    try:
        with session.app(outbox=outbox_dsn) as app:
            health = app.health()
    except DriverUnavailable as error:
        health = unreachable(error, str(error.meta.get("place", "the database")), SystemClock())
    session.output.draw(HealthView(health), health_text(health), health.as_json())
    if not health.is_well:
        raise typer.Exit(1)
