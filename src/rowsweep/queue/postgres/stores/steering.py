"""Moving jobs by hand on Postgres, their ledger rows with them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final, TypeVar

from psycopg.errors import DeadlockDetected, UniqueViolation

from rowsweep.errors import InvariantBroken, JobNotFound, NotRemovable, NotRequeueable
from rowsweep.options import count
from rowsweep.queue.postgres.statements.session import PooledSession
from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.postgres.stores import records
from rowsweep.queue.postgres.stores.keys import refuse_taken_key, refusing_a_key_taken_meanwhile
from rowsweep.queue.records import LIVE_STATES
from rowsweep.queue.refusals import (
    check_from_step,
    check_promotable,
    check_removable,
    check_requeueable,
    not_promotable,
)
from rowsweep.queue.selection import MAX_BULK_ROWS, BulkResult

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from rowsweep.queue.postgres.statements.session import Session
    from rowsweep.queue.records import Job
    from rowsweep.queue.selection import JobSet

_SQL = load(__name__)
_MEETINGS: Final = 5
Moved = TypeVar("Moved")


class PostgresSteering:
    """Move jobs, single ones and sets; checks come first, then one statement."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def cancel(self, job_id: UUID, *, reason: str | None = None) -> Job | None:
        """Stop a live job; None where it is not live."""
        rows = self._session.rows(_SQL["cancel"], {"job_id": job_id, "reason": reason})
        return records.job(rows[0]) if rows else None

    def requeue(self, job_id: UUID, *, from_step: str | None = None) -> Job:
        """Make a finished job due now with its attempts counted anew; with `from_step` without what came from there."""
        return self._meeting_enqueues(lambda: self._requeue(job_id, from_step))

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

    def promote(self, job_id: UUID) -> Job:
        """Make a job due now that waits for its time."""
        with self._session.unit() as session:
            rows = session.rows(_SQL["promote"], {"job_id": job_id})
            if rows:
                return records.job(rows[0])
            found = session.rows(_SQL["waits"], {"job_id": job_id})
        state, waits = found[0] if found else (None, False)
        raise not_promotable(job_id, state, waits=waits)

    def requeue_many(self, where: JobSet, *, limit: int = MAX_BULK_ROWS) -> BulkResult:
        """Requeue finished rows whose key is free, the longest finished first."""
        check_requeueable(where.state)
        return self._meeting_enqueues(lambda: self._move("requeue_many", "count_requeueable", where, limit))

    def remove_many(self, where: JobSet, *, limit: int = MAX_BULK_ROWS) -> BulkResult:
        """Delete rows that are not running, with the steps of runs that end with them."""
        check_removable(where.state)
        return self._move("remove_many", "count_removable", where, limit)

    def promote_many(self, where: JobSet, *, limit: int = MAX_BULK_ROWS) -> BulkResult:
        """Make rows due now that wait for their time."""
        check_promotable(where.state)
        return self._move("promote_many", "count_promotable", where, limit)

    def _move(self, verb: str, left: str, where: JobSet, limit: int) -> BulkResult:
        most = count(limit, option="limit", minimum=0, maximum=MAX_BULK_ROWS)
        values = asdict(where)
        with self._session.unit() as session:
            affected = session.rows(_SQL[verb], {**values, "limit": most})[0][0] if most else 0
            return BulkResult(affected=affected, remaining=session.rows(_SQL[left], values)[0][0])

    def _requeue(self, job_id: UUID, from_step: str | None) -> Job:
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
            with refusing_a_key_taken_meanwhile(name):
                return records.job(session.rows(_SQL["requeue"], {"job_id": job_id, "from_step": from_step})[0])

    def _meeting_enqueues(self, requeue: Callable[[], Moved]) -> Moved:
        """Ask anew where an enqueue under way took a key: its job, committed by now, is found by the checks.

        On a caller's connection the error is the caller's, whose transaction it has ended.
        """
        for _ in range(_MEETINGS if isinstance(self._session, PooledSession) else 0):
            try:
                return requeue()
            except DeadlockDetected:
                pass
            except InvariantBroken as error:
                if not isinstance(error.__cause__, UniqueViolation):
                    raise
        return requeue()
