"""Say who holds a run that is to be worked here: another worker, or the lease of one that is gone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from rowsweep.clock import SystemClock, real_monotonic
from rowsweep.queue.records import JobFilter

if TYPE_CHECKING:
    from rowsweep.app.app import App
    from rowsweep.queue.records import Job
    from rowsweep.sweeps.run import Run
    from rowsweep.sweeps.snapshot import Snapshot
    from rowsweep.worker.worker import Worker

_QUIET_SECONDS: Final = 1.0


class ForeignLease:
    """Watch for a lease that is not this worker's, asked for only while no row is added.

    A worker that was killed cannot give its claim back: the run is taken over when the lease lapses, which a live
    worker prevents by renewing it.
    """

    def __init__(self, app: App, run: Run, worker: Worker) -> None:
        self._app = app
        self._run = run
        self._worker = worker
        self._rows: int | None = None
        self._changed_at = real_monotonic() - _QUIET_SECONDS

    def words(self, snapshot: Snapshot) -> str | None:
        """Answer what is waited for and for how long; None where nobody else holds the run."""
        if snapshot.rows != self._rows:
            is_first, self._rows = self._rows is None, snapshot.rows
            if not is_first:
                self._changed_at = real_monotonic()
        if real_monotonic() - self._changed_at < _QUIET_SECONDS:
            return None
        job = self._held_elsewhere()
        if job is None or job.visible_at is None:
            return None
        left = math.ceil((job.visible_at - SystemClock().now()).total_seconds())
        if left <= 0:
            self._worker.kick()
            return "the lease of the worker that held it has lapsed: taking over"
        who = self._named(job)
        return (
            f"waiting for the lease of the worker that held it to lapse, {left} s"
            if who is None
            else f"held by the worker {who}; if that is gone, its lease lapses in {left} s"
        )

    def _named(self, job: Job) -> str | None:
        """Answer where the worker is that holds the job; None where no live one does."""
        workers = self._app.stores().workers
        live = [] if workers is None else workers.live()
        return next((f"{worker.host}:{worker.pid}" for worker, _ in live if worker.id == job.claimed_by), None)

    def _held_elsewhere(self) -> Job | None:
        inspection = self._app.stores().inspection
        jobs = [] if inspection is None else inspection.list(JobFilter(run_id=self._run.run_id), limit=1)
        return next((job for job in jobs if job.state == "running" and job.claimed_by != self._worker.id), None)
