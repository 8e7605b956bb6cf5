"""The scheduler: in rounds, fires what the tasks of this process have due, while it leads."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Literal

from rowsweep.clock import SystemClock
from rowsweep.jobs.tasks.handle import occurrence_text
from rowsweep.lifecycle import lifecycle as process_lifecycle
from rowsweep.lifecycle import wait_all_by
from rowsweep.scheduler.dispatcher import Dispatched, Dispatcher
from rowsweep.scheduler.folds import Folds
from rowsweep.scheduler.leaders import SoleLeader
from rowsweep.scheduler.options import SchedulerOptions
from rowsweep.scheduler.volatile import VolatileSchedules
from rowsweep.spelling import spelled
from rowsweep.teardown import Teardown
from rowsweep.telemetry.events import emit
from rowsweep.timers import Looper, RealTimers

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from rowsweep.clock import Clock
    from rowsweep.jobs.tasks.handle import TaskHandle
    from rowsweep.lifecycle import Lifecycle, Shutdown
    from rowsweep.queue.contract import Driver
    from rowsweep.queue.stores.schedules import Lease, ScheduleStore
    from rowsweep.scheduler.leaders import Leader
    from rowsweep.timers import Timers

SchedulerState = Literal["idle", "running", "draining", "stopped"]
_SUGGESTED_BUDGET: Final = "60s"


@spelled
class Scheduler:
    """Enqueue what tasks have due, on a daemon thread; several may run, and the one that leads dispatches.

    Takes `SchedulerOptions` or its keywords. Without `state` the driver's watermarks are used, and without those ones
    that end with the process. The driver stays the caller's to close.
    """

    def __init__(  # noqa: PLR0913 - what a test gives from outside, each by itself
        self,
        *,
        driver: Driver,
        leader: Leader | None = None,
        state: ScheduleStore | None = None,
        options: SchedulerOptions | None = None,
        clock: Clock | None = None,
        timers: Timers | None = None,
        lifecycle: Lifecycle | None = None,
        **given: Any,
    ) -> None:
        self._options = options if options is not None and not given else SchedulerOptions(**given)
        self._leader = leader or SoleLeader()
        self._clock = clock or SystemClock()
        self._timers = timers or RealTimers()
        self._lifecycle = lifecycle
        stores = driver.control()
        kept = state or stores.schedules or VolatileSchedules(stores.jobs)
        self._dispatcher = Dispatcher(kept, self._options.cron, self._clock)
        self._folds = Folds(stores.counters, self._clock)
        self._lock = threading.RLock()
        self._state: SchedulerState = "idle"
        self._is_leading = False
        self._asked_at: float | None = None
        self._round: Future[Any] | None = None
        self._loop: Looper | None = None
        self._teardown = Teardown()
        self._removers: list[Callable[[], None]] = []
        self._pid = os.getpid()

    @property
    def state(self) -> SchedulerState:
        """Answer `idle`, `running`, `draining` or `stopped`; in a forked child `idle`, whatever its parent does."""
        self._leave_to_parent()
        return self._state

    @property
    def is_leading(self) -> bool:
        """Answer whether this scheduler led when that was last asked."""
        self._leave_to_parent()
        return self._is_leading

    def next_run_for(self, task: TaskHandle, after: datetime | None = None) -> datetime:
        """Answer a task's first occurrence later than `after` (default: now), in UTC."""
        return self._options.cron(task.cron, task.tz, after or self._clock.now())

    def start(self) -> None:
        """Start the rounds; while it runs or drains, do nothing. Raises Draining while the process is stopped."""
        self._leave_to_parent()
        with self._lock:
            if self._state not in ("idle", "stopped"):
                return
            self._register()
            self._state = "running"
            self._loop = Looper("scheduler", self._step, timers=self._timers, failed=self._failed)
        emit("jobs.scheduler.started", tasks=len(self._options.chosen_tasks()))
        self._loop.start()

    def tick(self) -> list[Dispatched]:
        """Make one round, or join the one under way; answer what it fired, nothing while draining or stopped.

        Needs no start. Raises what ended the round, such as DriverUnavailable.
        """
        self._leave_to_parent()
        with self._lock:
            if not self._may_dispatch():
                return []
            joined = self._round
            mine = self._round = joined or Future()
        if joined is None:
            self._make(mine)
        return list(mine.result())

    def stop(self, reason: str = "stop", *, deadline_at: float | None = None) -> None:
        """Dispatch no more, wait for the round under way, and give the lead back; at once where it was stopped.

        `deadline_at` is a reading of the real monotonic clock. Where it comes first the round is abandoned, and the
        lead is kept until it expires.
        """
        self._leave_to_parent()
        with self._lock:
            if self._state == "stopped" or (self._state == "idle" and self._round is None and not self._is_leading):
                self._state = "stopped"
                return
            self._begin_drain(reason)
        self._teardown.run(lambda: self._tear_down(reason, deadline_at), deadline_at)

    def _leave_to_parent(self) -> None:
        """Begin anew in a forked child: the loop stayed behind, and the lead is the parent's."""
        if self._pid != os.getpid():
            self._pid, self._lock, self._teardown = os.getpid(), threading.RLock(), Teardown()
            self._state, self._is_leading, self._asked_at = "idle", False, None
            self._round, self._loop, self._removers = None, None, []

    def _make(self, made: Future[list[Dispatched]]) -> None:
        try:
            fired = self._walk()
        except BaseException as error:
            self._end_round()
            made.set_exception(error)
            raise
        self._end_round()
        made.set_result(fired)

    def _end_round(self) -> None:
        with self._lock:
            self._round = None

    def _walk(self) -> list[Dispatched]:
        fired: list[Dispatched] = []
        if not self._may_go_on():
            return fired
        now = self._clock.now()
        for task in self._options.chosen_tasks():
            if not self._may_go_on():
                break
            for one in self._dispatcher.walk(task, now, self._may_go_on):
                fired.append(one)
                if self._options.on_dispatched is not None:
                    self._options.on_dispatched(one)
        return fired

    def _may_go_on(self) -> bool:
        return self._may_dispatch() and self._still_leading()

    def _may_dispatch(self) -> bool:
        return self._state in ("idle", "running")

    def _still_leading(self) -> bool:
        """Answer from memory within the leader's `renew_every`; else ask, which renews."""
        now = self._clock.monotonic()
        if self._asked_at is not None and now - self._asked_at < self._leader.renew_every.total_seconds():
            return self._is_leading
        leads = self._ask()
        if leads and not self._is_leading:
            self._dispatcher.reload()
            self._folds.begin()
        was_leading, self._is_leading, self._asked_at = self._is_leading, leads, now
        if was_leading and not leads:
            emit("jobs.scheduler.leadership-lost", at=occurrence_text(self._clock.now()))
        return leads

    def _ask(self) -> bool:
        """Ask for the lead, or keep it; a fold that is due renews the lease itself, in the place of that statement."""
        lease: Lease | None = getattr(self._leader, "lease", None)
        is_fold_due = self._is_leading and self._folds.is_due()
        if is_fold_due and lease is not None and self._folds.make(lease):
            return True
        leads = self._leader.acquire()
        if is_fold_due and lease is None and leads:
            self._folds.make(None)
        return leads

    def _step(self) -> float:
        self.tick()
        return self._options.gap_seconds

    def _failed(self, error: BaseException) -> float:
        emit("jobs.scheduler.tick-failed", error=error)
        return self._options.gap_seconds

    def _register(self) -> None:
        if not self._options.drain_on_shutdown:
            return
        phases = self._lifecycle or process_lifecycle()
        self._removers = [phases.on("accept", "jobs.scheduler.accept", self._accept)]
        self._removers.append(phases.on("close", "jobs.scheduler", self._close))

    def _accept(self, shutdown: Shutdown) -> None:
        with self._lock:
            if self._state != "stopped":
                self._begin_drain(shutdown.reason)

    def _close(self, shutdown: Shutdown) -> None:
        self.stop(shutdown.reason, deadline_at=shutdown.deadline_at)

    def _begin_drain(self, reason: str) -> None:
        if self._state != "draining":
            self._state = "draining"
            emit("jobs.scheduler.draining", reason=reason, dispatching=self._round is not None)

    def _tear_down(self, reason: str, deadline_at: float | None) -> None:
        """Release only when no round is under way: a standby would dispatch what that round is about to."""
        try:
            with self._lock:
                loop, under_way = self._loop, self._round
            if loop is not None:
                loop.stop(0)
            if not wait_all_by([under_way] if under_way is not None else [], deadline_at):
                emit(
                    "jobs.scheduler.drain-abandoned",
                    reason=reason,
                    fix=f'rs.configure_lifecycle(deadline="{_SUGGESTED_BUDGET}"), and a longer grace period of the '
                    "orchestrator",
                )
            elif self._is_leading:
                self._leader.release()
        finally:
            with self._lock:
                self._state, self._is_leading, self._asked_at = "stopped", False, None
                removers, self._removers = self._removers, []
            for remove in removers:
                remove()
