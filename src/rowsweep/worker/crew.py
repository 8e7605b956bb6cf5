"""The parts of a worker from one start to its stop, and what passes between them."""

from __future__ import annotations

import os
import random
import socket
from typing import TYPE_CHECKING

from rowsweep.errors import LeaseLost
from rowsweep.queue.stores.workers import WorkerInfo
from rowsweep.queue.verdicts import GiveBack, Settlement
from rowsweep.telemetry.events import emit
from rowsweep.worker.admission.admitter import Admitter
from rowsweep.worker.admission.gate import Gate
from rowsweep.worker.claims import Admission, Claims
from rowsweep.worker.keeper import Keeper
from rowsweep.worker.run.deadlines import Deadlines, note_place, timeout_seconds_of
from rowsweep.worker.run.ends import Ends
from rowsweep.worker.run.execute import Executor
from rowsweep.worker.run.execution import Execution
from rowsweep.worker.run.hooks import Hooks
from rowsweep.worker.run.loop import LoopThread
from rowsweep.worker.run.pool import RunPool
from rowsweep.worker.run.progress import ProgressWriter
from rowsweep.worker.run.verdict import failed
from rowsweep.worker.settler import Settler
from rowsweep.worker.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rowsweep.errors import RowsweepError
    from rowsweep.queue.verdicts import Verdict
    from rowsweep.worker.equipment import Equipment
    from rowsweep.worker.flights import Flight
    from rowsweep.worker.run.execution import Ending
    from rowsweep.worker.tally import WorkerState


class Crew:
    """Claim loop, run threads, keeper, settler and watch of one worker id."""

    def __init__(self, equipment: Equipment, state: Callable[[], WorkerState]) -> None:
        options = equipment.options
        self.id = equipment.worker_id
        self.drain_signal = equipment.drain_signal
        self.flights = equipment.flights
        self.tally = equipment.tally
        self._equipment = equipment
        self._state = state
        self._gate = Gate(equipment)
        self._keeper = Keeper(equipment, self._gate.slots)
        self._watch = Watch(equipment)
        self._loop = LoopThread()
        self.hooks = Hooks(equipment, self._loop, self._caught_up)
        self._ends = Ends(equipment, self._gate, self.hooks, self._room_again)
        self._settler = Settler(equipment, self._ends.answered)
        self._deadlines = Deadlines(equipment, self._leave_behind)
        self._progress = ProgressWriter(equipment, self._keeper.lose)
        self._executor = Executor(
            driver=equipment.driver,
            clock=equipment.clock,
            loop=self._loop,
            deadlines=self._deadlines,
            progress=self._progress,
        )
        self._pools = {
            queue: RunPool(
                queue,
                options.concurrency_of(queue),
                self._work,
                self._freed,
                refused=self._unflown,
                is_held=self.hooks.is_behind,
            )
            for queue in options.queues
        }
        self.claims = Claims(equipment, self._pools, self._hands())

    def _hands(self) -> Admission:
        admitter = Admitter(self._equipment, self._gate, self)
        return Admission(
            admit=admitter.admit,
            fly=admitter.fly,
            hand_back=admitter.hand_back,
            announcement=self._announcement,
            busy=self._gate.busy,
            buried=self._ends.buried,
        )

    def start(self) -> None:
        """Start every thread that a drain will need, then claim."""
        self._keeper.start()
        self._settler.start()
        self.claims.start()

    def give_back(self, flight: Flight) -> None:
        """Hand back a claim whose run did not end in time; what its body still does is fenced off."""
        if flight.end():
            flight.execution = Execution(
                outcome="interrupted",
                job_id=flight.job.id,
                job=flight.job.name,
                attempt=flight.job.attempt,
                duration_ms=round((self._equipment.clock.monotonic() - flight.claimed_at) * 1000),
                error=flight.signal.reason,
            )
            self.settle(flight, GiveBack())

    def close(self, seconds_left: Callable[[], float | None]) -> None:
        """End every thread that can still be ended, the keeper last: what is not settled yet stays renewed."""
        self.claims.stop(seconds_left())
        for pool in self._pools.values():
            pool.close()
        self._watch.stop(seconds_left())
        self._deadlines.stop(seconds_left())
        self._progress.stop(seconds_left())
        self._settler.stop(seconds_left())
        self.hooks.close()
        self._leave()
        self._loop.close()
        self._keeper.stop(seconds_left())

    def _leave(self) -> None:
        """Take the worker's row away; it would expire by itself."""
        try:
            workers = self._equipment.driver.control().workers
            if workers is not None:
                workers.leave(self.id)
        except Exception as error:  # noqa: BLE001 - a worker stops also where its database is gone
            emit("jobs.worker.tick-failed", worker_id=self.id, error=error)

    def take_off(self, flights: Sequence[Flight]) -> None:
        """Count claims in flight, as work of the process, and keep their leases."""
        self._equipment.lifecycle.work_began(len(flights))
        self.flights.add(flights)
        if any(flight.handle.options.on_settled is not None for flight in flights):
            self.hooks.prepare()
        self._keeper.admit(flights)
        self._keeper.start()

    def fly(self, flights: Sequence[Flight]) -> None:
        """Hand flights of one queue to its run threads; where none can be started the claims are given back."""
        for flight in flights:
            if flight.handle.has_ledger:
                self._watch.admit(flight)
        self._pools[flights[0].job.queue].submit(flights)

    def _unflown(self, flight: Flight, error: RuntimeError) -> None:
        """Give back a claim for which no thread can be started."""
        emit("jobs.worker.tick-failed", worker_id=self.id, queue=flight.job.queue, error=error)
        self.give_back(flight)

    def settle(self, flight: Flight, verdict: Verdict) -> None:
        """Send how a claim ends."""
        execution = flight.execution
        settlement = Settlement(
            claim=flight.claim,
            verdict=verdict,
            duration_ms=execution.duration_ms if execution else 0,
            progress=None if flight.progress is None else flight.progress.left(),
            sweep=flight.handle.has_ledger,
        )
        self._settler.send(flight, settlement)

    def lose(self, flight: Flight, why: str) -> None:
        """Report a claim as lost whose run never began."""
        self._keeper.lose(flight, why)

    def due_again(self, seconds: float) -> None:
        """Have the claim loop look again when a row that was shed falls due."""
        self.claims.look_within(seconds)

    def _work(self, flight: Flight) -> None:
        """Execute a flight on its run thread and send its settlement on; the thread is free then."""
        try:
            ending = self._executor.execute(flight)
        except BaseException as error:  # noqa: BLE001 - a fault of ours fails the attempt, and ends no run thread
            emit("jobs.worker.tick-failed", worker_id=self.id, queue=flight.job.queue, error=error)
            flight.end()
            ending = failed(flight, error, attempt=flight.job.attempt, chance=random.random())
        if ending is not None:
            self._end(flight, ending)

    def _leave_behind(self, flight: Flight, late: RowsweepError) -> None:
        """Fail a run whose body goes on past its deadline and its grace; another thread takes its place."""
        note_place(late, self._pools[flight.job.queue].thread_of(flight))
        ending = self._executor.leave_behind(flight, late)
        if ending is None:
            return
        self.tally.leave_behind()
        emit(
            "jobs.timeout.abandoned",
            worker_id=self.id,
            job=flight.job.name,
            job_id=str(flight.job.id),
            attempt=flight.job.attempt,
            timeout_seconds=timeout_seconds_of(late),
            error=late,
        )
        self._end(flight, ending)
        self._pools[flight.job.queue].leave_behind(flight)

    def _end(self, flight: Flight, ending: Ending) -> None:
        if ending.verdict is None:
            if isinstance(ending.error, LeaseLost) and flight.revoked is None:
                self._keeper.report_loss(flight, ending.error)
            self._ends.finish([flight])
        else:
            self.settle(flight, ending.verdict)

    def _freed(self, queue: str) -> None:
        self.claims.kick(queue)

    def _room_again(self, queues: set[str]) -> None:
        self.claims.room_again(queues)

    def _caught_up(self) -> None:
        self.claims.kick()

    def _announcement(self, names: list[str]) -> WorkerInfo:
        options = self._equipment.options
        return WorkerInfo(
            id=self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            app_version=options.app_version,
            queues=list(options.queues),
            names=names,
            concurrency={queue: options.concurrency_of(queue) for queue in options.queues},
            state=self._state(),
            in_flight=len(self.flights),
            processed=self.tally.processed,
            interrupted=self.tally.interrupted,
            wake=self.claims.is_awake,
        )
