"""`rowsweep tasks`: when the tasks declared here are due, and one of them fired by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowsweep.cli.everywhere import EPILOG
from rowsweep.cli.session import session_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from rowsweep.jobs.tasks.handle import TaskHandle

Name = Annotated[str, typer.Argument(metavar="NAME", help="The task's name.")]
_MOST: int = 1_000

_tasks = typer.Typer(no_args_is_help=True, help="See when tasks are due, and fire one by hand.")


def add_to(application: typer.Typer) -> None:
    """Add the commands to the application."""
    application.add_typer(_tasks, name="tasks")


@_tasks.command("ls", epilog=EPILOG)
def ls(context: typer.Context) -> None:
    """List the tasks declared here: when each is due next, and when it was last fired."""
    from rowsweep.clock import SystemClock
    from rowsweep.jobs.tasks.registry import registered_tasks
    from rowsweep.show.tables.schedule import tasks_table

    session = session_of(context)
    with session.app(declares=True, shipped=True) as app:
        store = app.stores().schedules
        watermarks = {} if store is None else store.watermarks()
        now = SystemClock().now()
        found = [_entry(task, watermarks, now) for task in registered_tasks()]
    document = [{name: value for name, value in entry.items() if name != "zone"} for entry in found]
    session.output.table(tasks_table(found), document)


@_tasks.command("next", epilog=EPILOG)
def next_runs(
    context: typer.Context,
    name: Name,
    count: Annotated[int, typer.Option(metavar="N", min=1, max=_MOST, help="How many.")] = 5,
) -> None:
    """Show when a task is due next, in its own zone and in UTC; asks no database."""
    from rowsweep.clock import SystemClock
    from rowsweep.jobs.tasks.occurrences import next_occurrence
    from rowsweep.jobs.tasks.registry import get_task
    from rowsweep.jobs.tasks.zone import zone_of
    from rowsweep.show.tables.schedule import occurrences_table

    session = session_of(context)
    session.load(shipped=True)
    task, now = get_task(name), SystemClock().now()
    zone, found, at = zone_of(task.tz), list[Any](), now
    for _ in range(count):
        at = next_occurrence(task.cron, task.tz, at)
        found.append(at)
    runs = [{"at": at.isoformat(), "local": at.astimezone(zone).isoformat()} for at in found]
    document = {"task": task.name, "cron": task.cron, "tz": task.tz, "runs": runs}
    session.output.table(occurrences_table(found, zone, now), document)


@_tasks.command("fire", epilog=EPILOG)
def fire(context: typer.Context, name: Name) -> None:
    """Put a task's jobs on the queue now.

    Its schedule goes on as it was, and the jobs keep their plain keys.
    """
    from rowsweep.jobs.tasks.registry import get_task
    from rowsweep.show.tables.schedule import fired_table

    session = session_of(context)
    with session.app(declares=True, shipped=True):
        results = get_task(name).enqueue()
    document = [
        {"job": job.name, "id": result.id, "run_id": result.run_id, "state": result.state,
         "deduplicated": result.deduplicated}
        for job, result in results
    ]  # fmt: skip
    session.output.table(fired_table(document), document)


def _entry(task: TaskHandle, watermarks: Mapping[str, datetime], now: datetime) -> dict[str, Any]:
    """Answer a task as a line of the list; one whose function raises is shown with its error, not left out."""
    from rowsweep.jobs.tasks.occurrences import next_occurrence
    from rowsweep.jobs.tasks.zone import zone_of

    names: list[str] = []
    error: str | None = None
    try:
        names = [job.name for job, _ in task.entries(now)]
    except Exception as raised:  # noqa: BLE001 - an application's function ran
        error = f"{type(raised).__name__}: {raised}"
    watermark = watermarks.get(task.name)
    return {
        "name": task.name,
        "cron": task.cron,
        "tz": task.tz,
        "catch_up": task.catch_up,
        "max_catch_up": task.max_catch_up,
        "zone": zone_of(task.tz),
        "next_at": next_occurrence(task.cron, task.tz, now),
        "last_fired_at": None if watermark is None or _is_armed(task, watermark) else watermark,
        "watermark": watermark,
        "jobs": names,
        "error": error,
    }


def _is_armed(task: TaskHandle, watermark: datetime) -> bool:
    """Say whether a watermark was only armed: it then lies a millisecond before an occurrence."""
    from datetime import timedelta

    from rowsweep.jobs.tasks.occurrences import next_occurrence

    armed_before = timedelta(milliseconds=1)
    return next_occurrence(task.cron, task.tz, watermark) == watermark + armed_before
