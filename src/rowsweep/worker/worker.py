"""The worker: claims jobs that this process declares and runs them until it is stopped."""

from __future__ import annotations

import os
import threading
import uuid
from typing import TYPE_CHECKING, Any

from rowsweep.clock import SystemClock, real_seconds_until
from rowsweep.errors import Draining, InvalidOption
from rowsweep.jobs import ambient
from rowsweep.jobs.registry import registered_jobs
from rowsweep.lifecycle import lifecycle as process_lifecycle
from rowsweep.spelling import spelled
from rowsweep.telemetry.events import emit
from rowsweep.timers import RealTimers
from rowsweep.worker.admission.slots import refuse_unenforceable
from rowsweep.worker.crew import Crew
from rowsweep.worker.drain import Drain
from rowsweep.worker.equipment import Equipment
from rowsweep.worker.options import WorkerOptions
from rowsweep.worker.tally import WorkerStats

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowsweep.clock import Clock
    from rowsweep.jobs.handle import JobHandle
    from rowsweep.lifecycle import Lifecycle, Shutdown
    from rowsweep.queue.contract import Driver
    from rowsweep.timers import Timers
    from rowsweep.worker.run.execution import Execution
    from rowsweep.worker.tally import WorkerState


@spelled
class Worker:
    """Claim and run jobs on daemon threads.

    Takes `WorkerOptions` or its keywords. `context` is called for each run: its answer's `services` reach the body as
    `ctx.services`, its `signal` can abort the run; both may be missing. The driver stays the caller's to close.
    """

    def __init__(
        self,
        *,
        driver: Driver,
        context: Callable[[], Any],
        options: WorkerOptions | None = None,
        clock: Clock | None = None,
        timers: Timers | None = None,
        lifecycle: Lifecycle | None = None,
        **given: Any,
    ) -> None:
        if not callable(context):
            raise InvalidOption(
                f"context must be a function that answers a run's surroundings; got {context!r:.80}.",
                fix="context=lambda: None",
                meta={"option": "context"},
            )
        self._driver = driver
        self._context = context
        self._options = options if options is not None and not given else WorkerOptions(**given)
        self._clock = clock or SystemClock()
        self._timers = timers or RealTimers()
        self._lifecycle = lifecycle
        self._lock = threading.RLock()
        self._state: WorkerState = "idle"
        self._crew: Crew | None = None
        self._drain: Drain | None = None
        self._is_draining = False
        self._is_torn_down = False
        self._stopped = threading.Event()
        self._removers: list[Callable[[], None]] = []
        self._pid = os.getpid()

    @property
    def id(self) -> str | None:
        """Answer the id of this start, by which the worker's claims are fenced; None before the first."""
        return None if self._crew is None else self._crew.id

    @property
    def state(self) -> WorkerState:
        """Answer `idle`, `running`, `draining` or `stopped`; in a forked child `idle`, whatever its parent does."""
        self._leave_to_parent()
        return self._state

    @property
    def stats(self) -> WorkerStats:
        """Answer the counts of this start."""
        crew = self._crew
        return WorkerStats(
            id=self.id,
            state=self._state,
            in_flight=0 if crew is None else len(crew.flights),
            processed=0 if crew is None else crew.tally.processed,
            interrupted=0 if crew is None else crew.tally.interrupted,
            abandoned=0 if crew is None else crew.tally.abandoned,
            outcomes={} if crew is None else crew.tally.outcomes,
        )

    def start(self) -> None:
        """Start claiming; a worker that runs goes on.

        Raises Draining while it or the process is being stopped, ConcurrencyUnenforceable where a job declares
        concurrency and the driver keeps no slots.
        """
        self._leave_to_parent()
        with self._lock:
            if self._state == "running":
                return
            self._refuse_draining()
            refuse_unenforceable(self._driver, self._declared())
            crew = self._crew if self._crew is not None and self._state == "idle" else self._hire()
            self._register(crew.id)
            if self._drain is not None:
                self._drain.prepare()
            self._state = "running"
        options = self._options
        emit(
            "jobs.worker.started",
            worker_id=crew.id,
            queues=list(options.queues),
            concurrency={queue: options.concurrency_of(queue) for queue in options.queues},
            names=[handle.name for handle in self._declared()],
        )
        crew.start()

    def kick(self) -> None:
        """Look for work at once."""
        if self._crew is not None:
            self._crew.claims.kick()

    def tick(self) -> list[Execution]:
        """Make one pass over every queue, wait for the runs it started, and answer them; needs no start.

        A worker that was stopped is idle again then, until it is stopped anew.
        """
        self._leave_to_parent()
        with self._lock:
            self._refuse_draining()
            crew = self._crew if self._crew is not None and self._state != "stopped" else self._hire()
        flights = crew.claims.tick()
        for flight in flights:
            flight.settled.wait()
        return [flight.execution for flight in flights if flight.execution is not None]

    def stop(self, reason: str = "stop", *, deadline_at: float | None = None) -> None:
        """Drain and stop; answers when everything is closed, and at once where it was.

        `deadline_at` is a reading of the real monotonic clock; without one it waits for as long as the runs take.
        Called in a run or a hook of its own it only begins: the worker stops once they have ended.
        """
        self._leave_to_parent()
        with self._lock:
            crew, drain, stopped = self._crew, self._drain, self._stopped
            if crew is None or drain is None or self._state == "stopped":
                self._state = "stopped"
                return
            self._begin_drain(drain, reason, deadline_at)
            is_first, self._is_torn_down = not self._is_torn_down, True
        if ambient.enclosing_worker() == crew.id:
            if is_first:
                given = (crew, drain, deadline_at)
                threading.Thread(target=self._tear_down, args=given, name="rowsweep-stop", daemon=True).start()
        elif is_first:
            self._tear_down(crew, drain, deadline_at)
        else:
            stopped.wait(real_seconds_until(deadline_at))

    def _leave_to_parent(self) -> None:
        """Begin anew in a forked child: the threads stayed behind, and what they hold is none of this process's."""
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), threading.RLock()
            self._state, self._crew, self._drain, self._removers = "idle", None, None, []

    def _declared(self) -> list[JobHandle[Any, Any]]:
        only = self._options.names
        return [handle for handle in registered_jobs() if only is None or handle.name in only]

    def _hire(self) -> Crew:
        """Make a crew under a fresh id: a restarted worker is never taken for its former self."""
        name = self._options.id
        fresh = str(uuid.uuid4())
        equipment = Equipment(
            worker_id=fresh if name is None else f"{name}:{fresh}",
            driver=self._driver,
            context=self._context,
            options=self._options,
            clock=self._clock,
            timers=self._timers,
            lifecycle=self._lifecycle or process_lifecycle(),
        )
        self._crew = Crew(equipment, lambda: self._state)
        self._drain = Drain(self._crew, margin_seconds=self._options.margin_seconds)
        self._is_draining = False
        self._is_torn_down = False
        self._stopped = threading.Event()
        self._state = "idle"
        return self._crew

    def _refuse_draining(self) -> None:
        if self._state == "draining":
            raise Draining(
                f"The worker {self.id} is draining; it can start again once it has stopped.",
                fix="worker.stop(), then worker.start()",
                meta={"worker_id": self.id},
            )

    def _register(self, worker_id: str) -> None:
        if not self._options.drain_on_shutdown:
            return
        phases = self._lifecycle or process_lifecycle()
        name = f"jobs.worker.{worker_id}"
        self._removers = [phases.on("accept", f"{name}.accept", self._accept)]
        self._removers.append(phases.on("close", name, self._close))

    def _accept(self, shutdown: Shutdown) -> None:
        with self._lock:
            if self._drain is not None and self._state != "stopped":
                self._begin_drain(self._drain, shutdown.reason, shutdown.deadline_at)

    def _close(self, shutdown: Shutdown) -> None:
        self.stop(shutdown.reason, deadline_at=shutdown.deadline_at)

    def _begin_drain(self, drain: Drain, reason: str, deadline_at: float | None) -> None:
        """Begin the one drain of this start; a later deadline still arms its cut-off."""
        if not self._is_draining:
            self._is_draining = True
            drain.begin(reason)
            self._state = "draining"
        drain.arm(deadline_at)

    def _tear_down(self, crew: Crew, drain: Drain, deadline_at: float | None) -> None:
        try:
            drain.finish(deadline_at)
        finally:
            try:
                crew.close(lambda: real_seconds_until(deadline_at))
            finally:
                self._end(crew)

    def _end(self, crew: Crew) -> None:
        with self._lock:
            self._state = "stopped"
            removers, self._removers = self._removers, []
        for remove in removers:
            remove()
        emit(
            "jobs.worker.stopped",
            worker_id=crew.id,
            processed=crew.tally.processed,
            interrupted=crew.tally.interrupted,
        )
        self._stopped.set()
