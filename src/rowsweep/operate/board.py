"""Everything at a glance: sweeps, queues, workers, dead letters, pauses and schedules, at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from rowsweep.clock import SystemClock
from rowsweep.jobs.tasks.occurrences import next_occurrence
from rowsweep.jobs.tasks.registry import registered_tasks
from rowsweep.operate.reading import Reading
from rowsweep.operate.views import JobView, PauseView, QueueView, View, WorkerView
from rowsweep.sweeps.snapshot import Snapshot, snapshot_of

if TYPE_CHECKING:
    from rowsweep.jobs.tasks.handle import TaskHandle
    from rowsweep.queue.contract import Driver

_OPEN_RUNS: Final = 20
_RECENT_RUNS: Final = 8
_DEAD: Final = 5
_ARMED_BEFORE: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView(View):
    """One task that this process declares, with its next run and its last; `last_fired_at` is None before one."""

    name: str
    cron: str
    tz: str
    next_at: datetime
    last_fired_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """What is going on; `runs` has the open ones first, then the latest, `dead` the latest dead letters."""

    place: str
    taken_at: datetime
    runs: tuple[Snapshot, ...]
    queues: tuple[QueueView, ...]
    workers: tuple[WorkerView, ...]
    dead: tuple[JobView, ...]
    pauses: tuple[PauseView, ...]
    schedules: tuple[ScheduleView, ...]

    def as_json(self) -> dict[str, Any]:
        """Answer the board as plain JSON, instants as ISO 8601 text."""
        parts = ("runs", "queues", "workers", "dead", "pauses", "schedules")
        listed = {name: [one.as_json() for one in getattr(self, name)] for name in parts}
        return {"place": self.place, "taken_at": self.taken_at.isoformat(), **listed}


def take_board(driver: Driver, before: Board | None = None) -> Board:
    """Ask for everything, a statement a part; what a driver does not keep is left empty.

    `before` is an earlier board, for the figures of the latest batches.
    """
    stores, reading = driver.stores(), Reading(driver)
    now = SystemClock().now()
    return Board(
        place=driver.place,
        taken_at=now,
        runs=_runs(driver, {} if before is None else {run.run_id: run for run in before.runs}),
        queues=tuple(reading.stats()),
        workers=() if stores.workers is None else tuple(reading.workers()),
        dead=() if stores.inspection is None else tuple(reading.dead_letters(limit=_DEAD)),
        pauses=() if stores.pauses is None else tuple(reading.pauses()),
        schedules=_schedules({} if stores.schedules is None else stores.schedules.watermarks(), now),
    )


def _runs(driver: Driver, before: Mapping[str, Snapshot]) -> tuple[Snapshot, ...]:
    ledger = driver.stores().ledger
    if ledger is None:
        return ()
    found = {
        row.run_id: row
        for rows in (
            ledger.list(status="running", limit=_OPEN_RUNS),
            ledger.list(status="paused", limit=_OPEN_RUNS),
            ledger.list(limit=_RECENT_RUNS),
        )
        for row in rows
    }
    return tuple(snapshot_of(row, before.get(str(row.run_id))) for row in found.values())


def _schedules(watermarks: Mapping[str, datetime], now: datetime) -> tuple[ScheduleView, ...]:
    views = (_schedule(task, watermarks.get(task.name), now) for task in registered_tasks())
    return tuple(sorted(views, key=lambda view: view.next_at))


def _schedule(task: TaskHandle, watermark: datetime | None, now: datetime) -> ScheduleView:
    # A watermark that was only armed lies a millisecond before an occurrence.
    is_armed = watermark is not None and next_occurrence(task.cron, task.tz, watermark) == watermark + _ARMED_BEFORE
    return ScheduleView(
        name=task.name,
        cron=task.cron,
        tz=task.tz,
        next_at=next_occurrence(task.cron, task.tz, now),
        last_fired_at=None if is_armed else watermark,
    )
