"""`rowsweep events`: publish the events that runs wait for."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from rowsweep.cli.everywhere import EPILOG
from rowsweep.cli.session import read_json, session_of

_events = typer.Typer(no_args_is_help=True, help="Publish the events that runs wait for.")


def add_to(application: typer.Typer) -> None:
    """Add the commands to the application."""
    application.add_typer(_events, name="events")


@_events.callback()
def events() -> None:
    """Publish the events that runs wait for."""


@_events.command("publish", epilog=EPILOG)
def publish(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The event's name.")],
    payload: Annotated[str | None, typer.Argument(metavar="[JSON]", help="What it says.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only for the waits that ask for this key.")] = None,
    ttl: Annotated[str | None, typer.Option(metavar="DURATION", help="How long it is kept, such as 24h.")] = None,
) -> None:
    """Publish one event.

    Every run that waits for its name and key goes on.
    """
    from rowsweep.queue.bus import publish_event

    session = session_of(context)
    value = read_json(payload, flag="JSON")
    with session.app():
        event = publish_event(name, value, key=key, ttl=ttl)
    session.output.answer(
        asdict(event), f"{event.name} {event.id}: published, kept until {event.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    )
