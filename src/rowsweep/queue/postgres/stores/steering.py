"""Moving jobs by hand on Postgres, their ledger rows with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowsweep.errors import JobNotFound, NotRemovable, NotRequeueable
from rowsweep.queue.postgres.sql import load
from rowsweep.queue.postgres.stores import records
from rowsweep.queue.postgres.stores.keys import refuse_taken_key
from rowsweep.queue.records import LIVE_STATES
from rowsweep.queue.refusals import check_from_step

if TYPE_CHECKING:
    from uuid import UUID

    from rowsweep.queue.postgres.session import Session
    from rowsweep.queue.records import Job

_SQL = load(__name__)


class PostgresSteering:
    """Move single jobs; checks come first, then one statement."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def cancel(self, job_id: UUID, *, reason: str | None = None) -> Job | None:
        """Stop a live job; None where it is not live."""
        rows = self._session.rows(_SQL["cancel"], {"job_id": job_id, "reason": reason})
        return records.job(rows[0]) if rows else None

    def requeue(self, job_id: UUID, *, from_step: str | None = None) -> Job:
        """Make a finished job due now with its attempts counted anew; with `from_step` without what came from there."""
        with self._session.unit() as session:
            found = session.rows(_SQL["find"], {"job_id": job_id})
            if not found:
                raise JobNotFound(
                    f"no job has the id {job_id}.", fix="rowsweep jobs ls --json", meta={"job_id": str(job_id)}
                )
            state, name, tenant_id, key, run_id = found[0]
            if state in LIVE_STATES:
                raise NotRequeueable(
                    f"job {job_id} is {state}, and only a finished job can be requeued.",
                    fix="rowsweep jobs ls --state dead --json",
                    meta={"job_id": str(job_id), "state": state},
                )
            refuse_taken_key(session, job_id, (name, tenant_id, key))
            if from_step is not None:
                is_stored, jobs = session.rows(_SQL["find_step"], {"run_id": run_id, "name": from_step})[0]
                stored = [] if is_stored else [row[0] for row in session.rows(_SQL["step_names"], {"run_id": run_id})]
                check_from_step(job_id, from_step, jobs=jobs, stored=None if is_stored else stored)
            return records.job(session.rows(_SQL["requeue"], {"job_id": job_id, "from_step": from_step})[0])

    def remove(self, job_id: UUID) -> bool:
        """Delete a job with its steps; a run's steps go with the last of its jobs."""
        if self._session.rows(_SQL["remove"], {"job_id": job_id}):
            return True
        found = self._session.rows(_SQL["find"], {"job_id": job_id})
        if not found:
            return False
        raise NotRemovable(
            f"job {job_id} is {found[0][0]}.",
            fix=f"rowsweep jobs cancel {job_id}",
            meta={"job_id": str(job_id), "state": found[0][0]},
        )
