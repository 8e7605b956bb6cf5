"""`rowsweep jobs`: look at jobs, and move them by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast
from uuid import UUID

import typer

from rowsweep.cli.everywhere import EPILOG
from rowsweep.cli.session import session_of
from rowsweep.errors import JobNotFound, NotCancellable, NotImplementedByDriver
from rowsweep.show import tables, values

if TYPE_CHECKING:
    from rowsweep.app import App
    from rowsweep.queue.contract import InspectionStore, SteeringStore
    from rowsweep.queue.records import Job, JobFilter, Step

    Store = TypeVar("Store")

State = Literal["ready", "delayed", "running", "suspended", "done", "failed", "dead", "cancelled"]
Id = Annotated[UUID, typer.Argument(metavar="ID", help="The job's id.")]
Limit = Annotated[int, typer.Option(metavar="N", help="How many at most.", min=0)]

_jobs = typer.Typer(no_args_is_help=True, help="Look at jobs, and move them by hand.")


def add_to(application: typer.Typer) -> None:
    """Add the commands to the application."""
    application.add_typer(_jobs, name="jobs")


@_jobs.command("ls", epilog=EPILOG)
def ls(
    context: typer.Context,
    queue: Annotated[str | None, typer.Option(metavar="Q", help="Only of this queue.")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this name.")] = None,
    state: Annotated[State | None, typer.Option(help="Only in this state.")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="ID", help="Only of this tenant.")] = None,
    limit: Limit = 100,
) -> None:
    """List jobs, newest first."""
    from rowsweep.queue.records import JobFilter

    _list(context, JobFilter(queue=queue, name=name, state=state, tenant_id=tenant), limit)


@_jobs.command("dead", epilog=EPILOG)
def dead(context: typer.Context, limit: Limit = 100) -> None:
    """List dead letters, the latest first."""
    session = session_of(context)
    with session.app() as app:
        found = _inspection(app).dead_letters(limit=limit)
    session.output.table(tables.jobs_table(found), found)


@_jobs.command("show", epilog=EPILOG)
def show(
    context: typer.Context, job_id: Id, steps: Annotated[bool, typer.Option("--steps", help="Its steps too.")] = False
) -> None:
    """Show one job in full."""
    session = session_of(context)
    with session.app() as app:
        job = _found(_inspection(app).get(job_id), job_id)
        of_run = app.stores().steps.list(job.run_id) if steps else []
    document = _as_dict(job) | ({"steps": of_run} if steps else {})
    session.output.table(tables.pairs_table(_pairs(job, of_run)), document)


@_jobs.command("names", epilog=EPILOG)
def names(context: typer.Context) -> None:
    """List the jobs declared here, and waiting ones nobody declares."""
    from rowsweep.jobs.registry import describe_jobs

    session = session_of(context)
    with session.app(declares=True) as app:
        declared = describe_jobs()
        unknown = _inspection(app).undeclared([str(entry["name"]) for entry in declared])
    document = {
        "declared": declared,
        "undeclared": [{"queue": queue, "name": name, "waiting": rows} for queue, name, rows in unknown],
    }
    session.output.table(tables.names_table(declared, unknown), document)


@_jobs.command("cancel", epilog=EPILOG)
def cancel(
    context: typer.Context,
    job_id: Id,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for the record.")] = None,
) -> None:
    """Stop a live job, its sweep with it."""
    session = session_of(context)
    with session.app() as app:
        job = _steering(app).cancel(job_id, reason=reason)
        if job is None:
            state = _found(_inspection(app).get(job_id), job_id).state
            raise NotCancellable(
                f"job {job_id} is {state}: only a live one can be cancelled.",
                fix="rowsweep jobs ls --json",
                meta={"job_id": str(job_id), "state": state},
            )
    session.output.answer(job, f"{job.name} {job.id}: {job.state}")


@_jobs.command("requeue", epilog=EPILOG)
def requeue(
    context: typer.Context,
    job_id: Id,
    from_step: Annotated[
        str | None, typer.Option(metavar="STEP", help="Forget this step and all later ones, so they run again.")
    ] = None,
) -> None:
    """Make a finished job due now, its attempts counted anew.

    A sweep goes on from its checkpoint; any run goes on behind the steps it has finished.
    """
    session = session_of(context)
    with session.app() as app:
        job = _steering(app).requeue(job_id, from_step=from_step)
    session.output.answer(job, f"{job.name} {job.id}: {job.state}")


@_jobs.command("rm", epilog=EPILOG)
def rm(context: typer.Context, job_id: Id) -> None:
    """Delete a job with its steps.

    A running one must be cancelled first.
    """
    session = session_of(context)
    with session.app() as app:
        if not _steering(app).remove(job_id):
            _found(None, job_id)
    session.output.answer({"id": job_id, "removed": True}, f"{job_id}: removed")


def _list(context: typer.Context, where: JobFilter, limit: int) -> None:
    session = session_of(context)
    with session.app() as app:
        found = _inspection(app).list(where, limit=limit)
    session.output.table(tables.jobs_table(found), found)


def _pairs(job: Job, steps: list[Step]) -> list[tuple[str, str]]:
    from rowsweep.jobs.json_form import json_text, safe_json

    shown = {name: value for name, value in _as_dict(job).items() if value is not None}
    pairs = [(name, value if isinstance(value, str) else json_text(safe_json(value))) for name, value in shown.items()]
    for step in steps:
        took = values.instant(step.completed_at or step.started_at)
        pairs.append((f"step {step.name}", f"{step.kind}, {step.status}, {took}: {json_text(safe_json(step.output))}"))
    return pairs


def _as_dict(job: Job) -> dict[str, Any]:
    from dataclasses import asdict

    from rowsweep.jobs.json_form import safe_json

    return cast("dict[str, Any]", safe_json(asdict(job)))


def _found(job: Job | None, job_id: UUID) -> Job:
    if job is None:
        raise JobNotFound(f"there is no job {job_id}.", fix="rowsweep jobs ls --json", meta={"job_id": str(job_id)})
    return job


def _inspection(app: App) -> InspectionStore:
    return _present(app.stores().inspection, app, "look at jobs")


def _steering(app: App) -> SteeringStore:
    return _present(app.stores().steering, app, "move jobs by hand")


def _present(store: Store | None, app: App, what: str) -> Store:
    if store is None:
        raise NotImplementedByDriver(
            f"the driver {app.driver.name!r} cannot {what}.", fix='rs.connect("postgresql://…")'
        )
    return store
