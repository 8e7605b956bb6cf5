"""Steering the queue: single jobs, sets of them, and pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from rowsweep.errors import CancelUnsupported, NotCancellable
from rowsweep.jobs import ambient
from rowsweep.jobs.request import MAX_KEY
from rowsweep.operate import views
from rowsweep.operate.present import present
from rowsweep.operate.wanted import check_texts, id_of, job_set, reason_of
from rowsweep.queue.selection import MAX_BULK_ROWS

if TYPE_CHECKING:
    from rowsweep.queue.contract import Driver, SteeringStore
    from rowsweep.queue.records import JobState
    from rowsweep.queue.selection import BulkResult
    from rowsweep.queue.stores.holds import PauseStore


class Steering:
    """Move jobs by hand, their sweeps' ledger rows with them, and hold queues and names back."""

    def __init__(self, driver: Driver, *, actor: str | None = None) -> None:
        self._driver = driver
        self._actor = actor

    def cancel(self, job_id: UUID | str, *, reason: str | None = None) -> views.JobView:
        """Stop a live job, its sweep with it; raises NotCancellable for one that is not live."""
        return cancel_job(self._driver, job_id, reason=reason)

    def requeue(self, job_id: UUID | str, *, from_step: str | None = None) -> views.JobView:
        """Make a finished job due now with its attempts counted anew; what its steps stored stays.

        With `from_step` that step and every later one are forgotten, so the run does them again. Raises JobNotFound,
        NotRequeueable for a live one, DuplicateJob where a live job has its key, InvalidOption for a step it has not.
        """
        check_texts(from_step=from_step)
        return views.job_view(self._store().requeue(id_of(job_id), from_step=from_step))

    def promote(self, job_id: UUID | str) -> views.JobView:
        """Make a job due now that is delayed or backs off; raises NotPromotable for any other."""
        return views.job_view(self._store().promote(id_of(job_id)))

    def remove(self, job_id: UUID | str) -> bool:
        """Delete a job with its steps; False for an unknown id. Raises NotRemovable for a running one."""
        return self._store().remove(id_of(job_id))

    def requeue_many(
        self,
        *,
        state: JobState | None = "dead",
        queue: str | None = None,
        name: str | None = None,
        tenant_id: str | None = None,
        limit: int = MAX_BULK_ROWS,
    ) -> BulkResult:
        """Requeue finished jobs, by default dead letters, the longest finished first; `state=None` is any finished one.

        A job whose key a live one has is left; of several with one key the oldest is moved. At most 1,000 a call;
        `remaining` is what another call could still move, and `limit=0` only counts. Raises NotRequeueable.
        """
        return self._store().requeue_many(job_set(state, queue, name, tenant_id), limit=limit)

    def promote_many(
        self,
        *,
        state: JobState | None = None,
        queue: str | None = None,
        name: str | None = None,
        tenant_id: str | None = None,
        limit: int = MAX_BULK_ROWS,
    ) -> BulkResult:
        """Make jobs due now that wait for their time: `delayed`, `ready` (backing off), or both.

        At most 1,000 a call, answered as `requeue_many` is. Raises NotPromotable for another state.
        """
        return self._store().promote_many(job_set(state, queue, name, tenant_id), limit=limit)

    def remove_many(
        self,
        *,
        state: JobState | None = None,
        queue: str | None = None,
        name: str | None = None,
        tenant_id: str | None = None,
        limit: int = MAX_BULK_ROWS,
    ) -> BulkResult:
        """Delete jobs with their steps, in one state or in any but `running`; at least one filter is given.

        At most 1,000 a call, answered as `requeue_many` is. Raises NotRemovable for `running`, InvalidOption.
        """
        return self._store().remove_many(job_set(state, queue, name, tenant_id, some=True), limit=limit)

    def pause(self, *, queue: str | None = None, name: str | None = None, reason: str | None = None) -> views.PauseView:
        """Hold a queue, a name, or a name on one queue from the next claim on; what is claimed already goes on.

        Answers the pause that stands: paused twice it is as it was. Raises InvalidOption where neither is named.
        """
        check_texts(longest=MAX_KEY, queue=queue, name=name)
        by = self._actor or ambient.attribution()
        return views.pause_view(self._pauses().pause(queue=queue, name=name, reason=reason_of(reason), by=by))

    def resume(self, *, queue: str | None = None, name: str | None = None) -> bool:
        """Take away the pause of exactly this pair and wake its workers; False where there was none."""
        check_texts(longest=MAX_KEY, queue=queue, name=name)
        return self._pauses().resume(queue=queue, name=name)

    def _store(self) -> SteeringStore:
        return present(self._driver, self._driver.stores().steering, "move jobs by hand")

    def _pauses(self) -> PauseStore:
        return present(self._driver, self._driver.stores().pauses, "pause")


def cancel_job(driver: Driver, job_id: UUID | str, *, reason: str | None = None) -> views.JobView:
    """Stop a live job; NotCancellable where it is finished or unknown, CancelUnsupported where the driver cannot."""
    wanted, store, inspection = id_of(job_id), driver.stores().steering, driver.stores().inspection
    if store is None:
        raise CancelUnsupported(
            f"the driver {driver.name!r} cannot cancel jobs.",
            fix='rs.connect("postgresql://…")',
            meta={"driver": driver.name},
        )
    job = store.cancel(wanted, reason=reason_of(reason))
    if job is not None:
        return views.job_view(job)
    found = None if inspection is None else inspection.get(wanted)
    raise NotCancellable(
        f"no live job has the id {wanted}."
        if found is None
        else f"job {wanted} is {found.state}: only a live one can be cancelled.",
        fix="rowsweep jobs ls --json",
        meta={"job_id": str(wanted), "state": None if found is None else found.state},
    )
