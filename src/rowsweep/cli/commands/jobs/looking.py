"""`rowsweep jobs show`, `stats`, `counters`, `workers` and `names`: one job, the queues, and who works them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowsweep.cli.commands.jobs.flags import Id, Most, Name, read_instant
from rowsweep.cli.session import session_of
from rowsweep.errors import JobNotFound
from rowsweep.queue.stores.counters import CounterTier
from rowsweep.show.tables import queue as tables
from rowsweep.show.words import values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rowsweep.operate.views import JobView, StepView


def show(
    context: typer.Context, job_id: Id, steps: Annotated[bool, typer.Option("--steps", help="Its steps too.")] = False
) -> None:
    """Show one job in full."""
    from rowsweep.show.tables.sweeps import pairs_table

    session = session_of(context)
    with session.app() as app:
        job = app.operate.get(job_id)
        if job is None:
            raise JobNotFound(f"there is no job {job_id}.", fix="rowsweep jobs ls --json", meta={"job_id": str(job_id)})
        of_run = app.operate.steps(job.run_id) if steps else []
    document = job.as_json() | ({"steps": [step.as_json() for step in of_run]} if steps else {})
    session.output.table(pairs_table(_pairs(job, of_run)), document)


def stats(context: typer.Context, most: Most = None) -> None:
    """Count each queue's jobs by state.

    `due` are those a worker could claim now; ready ones that are not due back off.
    """
    session = session_of(context)
    with session.app() as app:
        found = app.operate.stats()[:most]
    session.output.table(tables.stats_table(found), [queue.as_json() for queue in found])


def counters(
    context: typer.Context,
    name: Name = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Buckets from then on: an instant, or 90m (ago).")
    ] = None,
    tier: Annotated[CounterTier, typer.Option(help="How long a bucket is.")] = "minute",
    limit: Annotated[int, typer.Option(metavar="N", help="How many buckets at most.", min=0)] = 100,
) -> None:
    """Show how runs ended, by job and minute, hour or day.

    Minutes are kept for 2 hours, hours for 14 days, days for 400 days.
    """
    session = session_of(context)
    from_then_on = read_instant(since, flag="--since")
    with session.app() as app:
        found = app.operate.counters(tier=tier, name=name, since=from_then_on, limit=limit)
    session.output.table(tables.counters_table(found), [bucket.as_json() for bucket in found])


def workers(context: typer.Context, most: Most = None) -> None:
    """List the live workers: where each runs, what it claims, and how busy it is."""
    session = session_of(context)
    with session.app() as app:
        found = app.operate.workers()[:most]
    session.output.table(tables.workers_table(found), [worker.as_json() for worker in found])


def names(context: typer.Context, most: Most = None) -> None:
    """List the jobs declared here, and waiting ones nobody declares; --limit is of each."""
    from rowsweep.jobs.registry import describe_jobs

    session = session_of(context)
    with session.app(declares=True, shipped=True) as app:
        declared = describe_jobs()
        unknown = app.operate.undeclared([str(entry["name"]) for entry in declared])
    declared, unknown = declared[:most], unknown[:most]
    document = {"declared": declared, "undeclared": [view.as_json() for view in unknown]}
    session.output.table(tables.names_table(declared, unknown), document)


def _pairs(job: JobView, steps: Sequence[StepView]) -> list[tuple[str, str]]:
    from rowsweep.jobs.values.json_form import json_text, safe_json

    shown = {name: value for name, value in job.as_json().items() if value is not None}
    if words := values.progress(job.progress):
        shown["progress"] = words
    pairs = [(name, value if isinstance(value, str) else json_text(safe_json(value))) for name, value in shown.items()]
    for step in steps:
        took = values.instant(step.completed_at or step.started_at)
        pairs.append((f"step {step.name}", f"{step.kind}, {step.status}, {took}: {json_text(safe_json(step.output))}"))
    return pairs
