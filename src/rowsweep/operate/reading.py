"""Reading the queue: pages of jobs, one job, dead letters, counts, workers, pauses and undeclared names."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rowsweep.operate import views
from rowsweep.operate.counters import read_counters
from rowsweep.operate.pages import DEFAULT_JOB_PAGE, MAX_JOB_PAGE, page_bounds, page_limit
from rowsweep.operate.present import present
from rowsweep.operate.wanted import id_of, job_filter
from rowsweep.options import row_count
from rowsweep.queue.stores.counters import COUNTERS_DEFAULT, CounterBucket, CounterTier

if TYPE_CHECKING:
    from rowsweep.queue.contract import Driver, InspectionStore
    from rowsweep.queue.records import JobFilter


class Reading:
    """Answer what the queue holds as frozen views; NotImplementedByDriver where the driver cannot say."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def list(
        self,
        where: JobFilter | None = None,
        *,
        limit: int = DEFAULT_JOB_PAGE,
        after: str | None = None,
        before: str | None = None,
        **filters: Any,
    ) -> list[views.JobView]:
        """Answer a page of jobs, newest first; one shorter than its limit is the last.

        Filters are `JobFilter`'s, as an object or as keywords. `after=page[-1].cursor` is the next page,
        `before=page[0].cursor` the one before, its nearest rows, still newest first. Raises InvalidPage for a limit
        beyond 200, for both cursors at once and for one that no page answered; InvalidOption.
        """
        wanted, size = job_filter(where, filters), page_limit(limit)
        behind, in_front = page_bounds(after, before)
        store = self._inspection()
        if size == 0:
            return []
        return [views.job_view(job) for job in store.list(wanted, limit=size, after=behind, before=in_front)]

    def walk(self, where: JobFilter | None = None, *, limit: int, **filters: Any) -> Iterator[views.JobView]:
        """Answer jobs, newest first, over as many pages as `limit` takes; rows that come meanwhile are not seen."""
        left, after = row_count(limit), None
        while left > 0:
            size = min(left, MAX_JOB_PAGE)
            page = self.list(where, limit=size, after=after, **filters)
            yield from page
            if len(page) < size:
                return
            left, after = left - size, page[-1].cursor

    def get(self, job_id: UUID | str) -> views.JobView | None:
        """Answer one job, None for an unknown id."""
        job = self._inspection().get(id_of(job_id))
        return None if job is None else views.job_view(job)

    def steps(self, run_id: UUID | str) -> builtins.list[views.StepView]:
        """Answer the stored steps of a run, the earliest first."""
        return [views.step_view(step) for step in self._driver.stores().steps.list(id_of(run_id, option="run_id"))]

    def dead_letters(self, *, limit: int = DEFAULT_JOB_PAGE) -> builtins.list[views.JobView]:
        """Answer dead jobs, the latest first; `list(state="dead")` pages through them by when they were made."""
        return [views.job_view(job) for job in self._inspection().dead_letters(limit=page_limit(limit))]

    def undeclared(self, names: Sequence[str]) -> builtins.list[views.UndeclaredView]:
        """Answer the waiting rows that neither `names` nor a live worker declares, by queue and name."""
        found = self._inspection().undeclared(names)
        return [views.UndeclaredView(queue=queue, name=name, waiting=rows) for queue, name, rows in found]

    def stats(self) -> builtins.list[views.QueueView]:
        """Answer each queue's counts, by queue; finished rows are counted one by one."""
        return [views.queue_view(stats) for stats in self._driver.stores().jobs.stats()]

    def workers(self) -> builtins.list[views.WorkerView]:
        """Answer the live workers; one that was killed stays for up to 30 s."""
        store = present(self._driver, self._driver.stores().workers, "say which workers live")
        return [views.worker_view(info, seen_at) for info, seen_at in store.live()]

    def counters(
        self,
        *,
        tier: CounterTier = "minute",
        name: str | None = None,
        since: str | timedelta | datetime | None = None,
        limit: int = COUNTERS_DEFAULT,
    ) -> builtins.list[CounterBucket]:
        """Answer how runs ended by job name, the newest bucket first; see `rowsweep.counters`."""
        return read_counters(self._driver, tier=tier, name=name, since=since, limit=limit)

    def pauses(self) -> builtins.list[views.PauseView]:
        """Answer what is paused, the oldest first."""
        store = present(self._driver, self._driver.stores().pauses, "pause")
        return [views.pause_view(pause) for pause in store.list()]

    def _inspection(self) -> InspectionStore:
        return present(self._driver, self._driver.stores().inspection, "look at jobs")
