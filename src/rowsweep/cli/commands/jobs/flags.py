"""The arguments and flags that several of the commands on jobs take."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal
from uuid import UUID

import typer

from rowsweep.clock import SystemClock
from rowsweep.errors import InvalidOption
from rowsweep.options import duration

State = Literal["ready", "delayed", "running", "suspended", "done", "failed", "dead", "cancelled"]

Id = Annotated[UUID, typer.Argument(metavar="ID", help="The job's id.")]
Limit = Annotated[int, typer.Option(metavar="N", help="How many at most: up to 200 a page.", min=0)]
Most = Annotated[int | None, typer.Option("--limit", metavar="N", help="How many at most, else all.", min=0)]
Queue = Annotated[str | None, typer.Option(metavar="Q", help="Only of this queue.")]
Name = Annotated[str | None, typer.Option(metavar="NAME", help="Only of this name.")]
Tenant = Annotated[str | None, typer.Option(metavar="ID", help="Only of this tenant.")]


def read_instant(text: str | None, *, flag: str) -> datetime | None:
    """Answer an instant given as ISO 8601, in UTC where it names no zone, or as how long ago: `2h`.

    What is neither is a usage error.
    """
    instant = _iso(text)
    if text is None or instant is not None:
        return instant
    try:
        return SystemClock().now() - duration(text, option=flag)
    except (InvalidOption, OverflowError) as error:
        raise typer.BadParameter(
            f"{flag} takes an instant such as 2026-03-01T04:30 (UTC unless it says otherwise), or how long ago: 2h."
        ) from error


def read_iso(text: str | None, *, flag: str) -> datetime | None:
    """Answer an instant given as ISO 8601, in UTC where it names no zone; what is none is a usage error."""
    instant = _iso(text)
    if text is not None and instant is None:
        raise typer.BadParameter(f"{flag} takes an instant such as 2026-03-01T04:30 (UTC unless it says otherwise).")
    return instant


def _iso(text: str | None) -> datetime | None:
    try:
        instant = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
    return instant if instant is None or instant.tzinfo is not None else instant.replace(tzinfo=UTC)
