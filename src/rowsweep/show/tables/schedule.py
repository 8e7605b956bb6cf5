"""Make tables of tasks: what is declared, when each is due, and what one fired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rowsweep.show.tables.table import Cell, Column, Table
from rowsweep.show.words import values

if TYPE_CHECKING:
    from datetime import datetime
    from zoneinfo import ZoneInfo

_NO_TASKS: Final = "No task is declared here. Declare one with rs.task(…)."


def tasks_table(tasks: Sequence[Mapping[str, Any]]) -> Table:
    """Answer the declared tasks, one a line: an entry is its description with `zone`, `next_at` and `last_fired_at`."""
    columns = (
        Column(title="task", is_long=True),
        Column(title="cron", is_long=True, rank=3),
        Column(title="zone", is_long=True, rank=4),
        Column(title="next (its zone)"),
        Column(title="next (UTC)", rank=2),
        Column(title="last fired (UTC)", rank=1),
        Column(title="jobs", is_long=True, rank=5),
    )
    rows = tuple(
        (
            Cell(text=str(task["name"])),
            Cell(text=str(task["cron"])),
            Cell(text=str(task["tz"])),
            Cell(text=_local(task["next_at"], task["zone"])),
            Cell(text=_to_the_minute(task["next_at"])),
            Cell(
                text=_to_the_minute(task["last_fired_at"]) or "never", tone="plain" if task["last_fired_at"] else "dim"
            ),
            Cell(text=", ".join(task["jobs"])) if task["error"] is None else Cell(text=str(task["error"]), tone="bad"),
        )
        for task in tasks
    )
    return Table(columns=columns, rows=rows, empty=_NO_TASKS)


def occurrences_table(occurrences: Sequence[datetime], zone: ZoneInfo, now: datetime) -> Table:
    """Answer a task's next occurrences, in its zone and in UTC, each with how far ahead it is."""
    columns = (
        Column(title="in its zone"),
        Column(title="UTC"),
        Column(title="in", is_number=True, rank=1),
    )
    rows = tuple(
        (
            Cell(text=_local(at, zone)),
            Cell(text=_to_the_minute(at)),
            Cell(text=values.span((at - now).total_seconds()), tone="dim"),
        )
        for at in occurrences
    )
    return Table(columns=columns, rows=rows)


def fired_table(fired: Sequence[Mapping[str, Any]]) -> Table:
    """Answer the jobs that a task put on the queue, one a line."""
    columns = (Column(title="job", is_long=True), Column(title="id"), Column(title="state"))
    rows = tuple(
        (
            Cell(text=str(one["job"])),
            Cell(text=str(one["id"]), tone="dim"),
            Cell(text=f"{one['state']}, stood already" if one["deduplicated"] else str(one["state"])),
        )
        for one in fired
    )
    return Table(columns=columns, rows=rows, empty="The task has nothing to enqueue now.")


def _local(at: datetime, zone: ZoneInfo) -> str:
    return f"{at.astimezone(zone):%a %Y-%m-%d %H:%M %Z}"


def _to_the_minute(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M}"
