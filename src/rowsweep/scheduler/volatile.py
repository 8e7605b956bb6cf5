"""Watermarks of this process alone, for a driver that keeps none."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from rowsweep.jobs.request import EnqueueResult
    from rowsweep.queue.contract import JobStore
    from rowsweep.queue.stores.schedules import ScheduledFire


class VolatileSchedules:
    """Keep a watermark a task in memory; what was missed while the process was gone is never made up for."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs
        self._watermarks: dict[str, datetime] = {}
        self._lock = threading.Lock()

    def last_fired_at(self, task: str) -> datetime | None:
        """Answer a task's watermark."""
        return self._watermarks.get(task)

    def watermarks(self) -> Mapping[str, datetime]:
        """Answer every task's watermark."""
        return dict(self._watermarks)

    def mark_fired(self, task: str, at: datetime) -> datetime:
        """Arm a task that is seen for the first time; answer the watermark that stands."""
        return self._watermarks.setdefault(task, at)

    def fire(self, fire: ScheduledFire) -> list[EnqueueResult | None] | None:
        """Enqueue the jobs and then move the watermark; a crash between enqueues them once more."""
        with self._lock:
            former = self._watermarks.get(fire.task)
            if former is None or former >= fire.occurrence_at or fire.former_at not in (None, former):
                return None
            results = self._jobs.enqueue(fire.jobs)
            self._watermarks[fire.task] = max(fire.watermark_at, fire.occurrence_at)
            return list(results)
