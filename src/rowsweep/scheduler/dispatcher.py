"""One task's walk: arm it, find what is due, fire it, and remember when to look again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from rowsweep.errors import DriverUnavailable, SchemaMissing, SchemaOutdated
from rowsweep.jobs.tasks.handle import occurrence_text
from rowsweep.queue.stores.schedules import ScheduledFire
from rowsweep.scheduler.catch_up import due
from rowsweep.telemetry.events import emit

if TYPE_CHECKING:
    from rowsweep.clock import Clock
    from rowsweep.jobs.request import EnqueueResult, NewJob
    from rowsweep.jobs.tasks.handle import TaskHandle
    from rowsweep.jobs.tasks.occurrences import Resolver
    from rowsweep.queue.stores.schedules import ScheduleStore
    from rowsweep.scheduler.catch_up import Due

ARMED_BEFORE: Final = timedelta(milliseconds=1)
_SAID_AGAIN_SECONDS: Final = 60.0
_OUTAGES: Final = (DriverUnavailable, SchemaMissing, SchemaOutdated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """One occurrence that was fired, each of its jobs by name with its result.

    `catch_up` says that more than one was due; `dropped` of them are never fired. A result is None where a job with
    the occurrence's key was live and has just finished.
    """

    task: str
    occurrence_at: datetime
    jobs: list[tuple[str, EnqueueResult | None]]
    catch_up: bool
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class _Next:
    handle: TaskHandle
    at: datetime


class Dispatcher:
    """Fire what is due; watermarks are read once when the lead is gained, and known from there on."""

    def __init__(self, state: ScheduleStore, resolve: Resolver, clock: Clock) -> None:
        self._state = state
        self._resolve = resolve
        self._clock = clock
        self._watermarks: dict[str, datetime] = {}
        self._next: dict[str, _Next] = {}
        self._said: dict[str, tuple[str, float]] = {}

    def reload(self) -> None:
        """Read all watermarks, in one statement; others may have moved them."""
        self._watermarks = dict(self._state.watermarks())
        self._next.clear()

    def walk(self, task: TaskHandle, now: datetime, may_go_on: Callable[[], bool]) -> list[Dispatched]:
        """Fire what a task has due, asking before each further occurrence whether to go on.

        What is wrong with the task alone is reported and leaves its watermark. Raises DriverUnavailable, SchemaMissing,
        SchemaOutdated.
        """
        known = self._next.get(task.name)
        if known is not None and known.handle is task and known.at > now:
            return []
        fired: list[Dispatched] = []
        try:
            self._fire_due(task, now, may_go_on, fired)
        except _OUTAGES:
            raise
        except Exception as error:  # noqa: BLE001 - the next task must not wait for this one
            self._complain(task, error)
        return fired

    def _fire_due(
        self, task: TaskHandle, now: datetime, may_go_on: Callable[[], bool], fired: list[Dispatched]
    ) -> None:
        former_at = self._watermark(task, now)
        found = due(task, former_at, now, self._resolve)
        if not found.fires:
            self._next[task.name] = _Next(task, found.next_at)
        for index, (occurrence_at, watermark_at) in enumerate(found.fires):
            if index and not may_go_on():
                return
            jobs = self._jobs_of(task, occurrence_at)
            if jobs is None:
                return
            results = self._state.fire(
                ScheduledFire(
                    task=task.name,
                    occurrence_at=occurrence_at,
                    watermark_at=watermark_at,
                    jobs=jobs,
                    former_at=former_at,
                )
            )
            if results is None:
                self._learn(task.name)
                return
            former_at = self._watermarks[task.name] = watermark_at
            self._said.pop(task.name, None)
            named = [(job.name, result) for job, result in zip(jobs, results, strict=True)]
            fired.append(_reported(task, occurrence_at, named, found, is_first=index == 0))

    def _jobs_of(self, task: TaskHandle, at: datetime) -> list[NewJob] | None:
        """Ask the application; None, and reported, where it raised, be it for want of a database of its own."""
        try:
            return task.requests(at)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - an application's function ran
            self._complain(task, error)
            return None

    def _watermark(self, task: TaskHandle, now: datetime) -> datetime:
        """Answer the watermark; a task first seen is armed just before its next occurrence, never for the past."""
        known = self._watermarks.get(task.name)
        if known is None:
            at = self._resolve(task.cron, task.tz, now) - ARMED_BEFORE
            known = self._watermarks[task.name] = self._state.mark_fired(task.name, at)
        return known

    def _learn(self, name: str) -> None:
        """Read a watermark that the fence found moved, or gone."""
        at = self._state.last_fired_at(name)
        if at is None:
            self._watermarks.pop(name, None)
        else:
            self._watermarks[name] = at

    def _complain(self, task: TaskHandle, error: BaseException) -> None:
        """Report a task's failure; the same one, round after round, once a minute."""
        text, now = f"{type(error).__name__}: {error}", self._clock.monotonic()
        said = self._said.get(task.name)
        if said is None or said[0] != text or now - said[1] >= _SAID_AGAIN_SECONDS:
            self._said[task.name] = (text, now)
            emit("jobs.scheduler.tick-failed", task=task.name, error=error)


def _reported(
    task: TaskHandle,
    occurrence_at: datetime,
    jobs: list[tuple[str, EnqueueResult | None]],
    found: Due,
    *,
    is_first: bool,
) -> Dispatched:
    dropped = found.dropped if is_first else 0
    emit(
        "jobs.scheduler.dispatched",
        task=task.name,
        occurrence_at=occurrence_text(occurrence_at),
        jobs=[(name, None if result is None else str(result.id)) for name, result in jobs],
        catch_up=found.is_catch_up,
        dropped=f"at least {dropped}" if is_first and found.dropped_is_least else dropped,
    )
    return Dispatched(
        task=task.name, occurrence_at=occurrence_at, jobs=jobs, catch_up=found.is_catch_up, dropped=dropped
    )
