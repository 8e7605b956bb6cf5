"""`rowsweep jobs cancel`, `requeue`, `promote` and `rm`: move jobs by hand, one or a set of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowsweep.cli.commands.jobs.flags import Id
from rowsweep.cli.commands.jobs.sets import (
    All,
    Chosen,
    MaybeId,
    SetName,
    SetQueue,
    SetState,
    SetTenant,
    Yes,
    move_set,
)
from rowsweep.cli.session import session_of
from rowsweep.errors import JobNotFound

if TYPE_CHECKING:
    from rowsweep.operate.views import JobView


def cancel(
    context: typer.Context,
    job_id: Id,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for the record.")] = None,
) -> None:
    """Stop a live job, its sweep with it."""
    session = session_of(context)
    with session.app() as app:
        job = app.operate.cancel(job_id, reason=reason)
    session.output.answer(job.as_json(), _words(job))


def requeue(  # noqa: PLR0913 - one parameter a flag
    context: typer.Context,
    job_id: MaybeId = None,
    *,
    from_step: Annotated[
        str | None,
        typer.Option(metavar="STEP", help="With an ID: forget this step and all later ones, so they run again."),
    ] = None,
    state: SetState = None,
    queue: SetQueue = None,
    name: SetName = None,
    tenant: SetTenant = None,
    whole: All = False,
    yes: Yes = False,
) -> None:
    """Make finished jobs due now, their attempts counted anew.

    A sweep goes on from its checkpoint; any run goes on behind the steps it has finished. A set is of dead letters
    unless --state says otherwise; those whose key a live job has are left, and of several with one key the oldest goes.
    """
    session = session_of(context)
    chosen = Chosen(state=state, queue=queue, name=name, tenant=tenant, whole=whole, yes=yes)
    chosen.check(job_id)
    if from_step is not None and job_id is None:
        raise typer.BadParameter("--from-step takes one job up again: give its ID.")
    with session.app() as app:
        if job_id is None:
            dead = Chosen(state=state or "dead", queue=queue, name=name, tenant=tenant, whole=whole, yes=yes)
            move_set(session, dead, app.operate.requeue_many, verb="Requeue", done="requeued")
            return
        job = app.operate.requeue(job_id, from_step=from_step)
    session.output.answer(job.as_json(), _words(job))


def promote(  # noqa: PLR0913 - one parameter a flag
    context: typer.Context,
    job_id: MaybeId = None,
    *,
    state: SetState = None,
    queue: SetQueue = None,
    name: SetName = None,
    tenant: SetTenant = None,
    whole: All = False,
) -> None:
    """Make jobs due now that wait for their time: delayed, or backing off (ready)."""
    session = session_of(context)
    chosen = Chosen(state=state, queue=queue, name=name, tenant=tenant, whole=whole)
    chosen.check(job_id)
    with session.app() as app:
        if job_id is None:
            move_set(session, chosen, app.operate.promote_many, verb="Promote", done="promoted")
            return
        job = app.operate.promote(job_id)
    session.output.answer(job.as_json(), _words(job))


def rm(  # noqa: PLR0913 - one parameter a flag
    context: typer.Context,
    job_id: MaybeId = None,
    *,
    state: SetState = None,
    queue: SetQueue = None,
    name: SetName = None,
    tenant: SetTenant = None,
    whole: All = False,
    yes: Yes = False,
) -> None:
    """Delete jobs with their steps.

    Running ones must be cancelled first; a set without --state is of every other state. Ledger rows stay.
    """
    session = session_of(context)
    chosen = Chosen(state=state, queue=queue, name=name, tenant=tenant, whole=whole, yes=yes)
    chosen.check(job_id)
    with session.app() as app:
        if job_id is None:
            move_set(session, chosen, app.operate.remove_many, verb="Delete", done="removed")
            return
        if not app.operate.remove(job_id):
            raise JobNotFound(f"there is no job {job_id}.", fix="rowsweep jobs ls --json", meta={"job_id": str(job_id)})
    session.output.answer({"id": job_id, "removed": True}, f"{job_id}: removed")


def _words(job: JobView) -> str:
    return f"{job.name} {job.id}: {job.state}"
