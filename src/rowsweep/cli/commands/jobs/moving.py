"""`rowsweep jobs cancel`, `requeue` and `rm`: move jobs by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar
from uuid import UUID

import typer

from rowsweep.cli.commands.jobs.flags import Id
from rowsweep.cli.session import session_of
from rowsweep.errors import JobNotFound, NotCancellable, NotImplementedByDriver

if TYPE_CHECKING:
    from rowsweep.app import App
    from rowsweep.queue.contract import InspectionStore, SteeringStore
    from rowsweep.queue.records import Job

    Store = TypeVar("Store")


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


def rm(context: typer.Context, job_id: Id) -> None:
    """Delete a job with its steps.

    A running one must be cancelled first.
    """
    session = session_of(context)
    with session.app() as app:
        if not _steering(app).remove(job_id):
            _found(None, job_id)
    session.output.answer({"id": job_id, "removed": True}, f"{job_id}: removed")


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
