"""`rowsweep jobs ls` and `dead`: pages of jobs, and the dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rowsweep.cli.commands.jobs.flags import Limit, Name, Queue, State, Tenant, read_instant
from rowsweep.cli.session import session_of
from rowsweep.queue.records import WAITING_STATES
from rowsweep.show.tables import queue as tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rowsweep.operate.operator import Operator
    from rowsweep.operate.views import JobView

_CURSOR: Final = "CURSOR"


def ls(  # noqa: PLR0913 - one parameter a flag
    context: typer.Context,
    *,
    queue: Queue = None,
    name: Name = None,
    state: Annotated[State | None, typer.Option(help="Only in this state.")] = None,
    tenant: Tenant = None,
    id_prefix: Annotated[str | None, typer.Option(metavar="HEX", help="Only ids that begin so.")] = None,
    created_from: Annotated[
        str | None, typer.Option("--from", metavar="WHEN", help="Made then or later: an instant, or 2h (ago).")
    ] = None,
    created_to: Annotated[
        str | None, typer.Option("--to", metavar="WHEN", help="Made before: an instant, or 30m (ago).")
    ] = None,
    limit: Limit = 100,
    after: Annotated[
        str | None, typer.Option(metavar=_CURSOR, help="The page behind this job's cursor (see --json).")
    ] = None,
    before: Annotated[str | None, typer.Option(metavar=_CURSOR, help="The page in front of this job's cursor.")] = None,
) -> None:
    """List jobs, newest first, a page at a time."""
    session = session_of(context)
    filters: dict[str, Any] = {
        "queue": queue,
        "name": name,
        "state": state,
        "tenant_id": tenant,
        "id_prefix": id_prefix,
        "created_from": read_instant(created_from, flag="--from"),
        "created_to": read_instant(created_to, flag="--to"),
    }
    with session.app() as app:
        found = app.operate.list(limit=limit, after=after, before=before, **filters)
        unserved = _unserved(app.operate, found)
    session.output.table(
        tables.jobs_table(found, unserved), [job.as_json() | {"has_worker": _served(job, unserved)} for job in found]
    )
    if found and len(found) == limit and not session.output.is_json:
        session.output.note(f"The next page: add --after {found[-1].cursor}")


def dead(context: typer.Context, limit: Limit = 100) -> None:
    """List dead letters, the latest first."""
    session = session_of(context)
    with session.app() as app:
        found = app.operate.dead_letters(limit=limit)
    session.output.table(tables.dead_table(found), [job.as_json() for job in found])


def _unserved(operate: Operator, jobs: Sequence[JobView]) -> frozenset[str]:
    """Answer the ids of jobs that wait for a name which no live worker claims from their queue."""
    waiting = [job for job in jobs if job.state in WAITING_STATES]
    workers = operate.workers() if waiting else []
    served = {(queue, name) for worker in workers for queue in worker.queues for name in worker.names}
    return frozenset(job.id for job in waiting if (job.queue, job.name) not in served)


def _served(job: JobView, unserved: frozenset[str]) -> bool | None:
    return job.id not in unserved if job.state in WAITING_STATES else None
