"""From a claimed job to its run: admitted and wired, or shed, refused, handed back."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final, Protocol

from rowsweep.jobs.attempts.failure import failure_for_row
from rowsweep.jobs.concurrency import key_busy
from rowsweep.queue.verdicts import GiveBack, Refuse, Shed
from rowsweep.signals import RunSignal
from rowsweep.telemetry.events import emit
from rowsweep.worker.admission.gate import Full
from rowsweep.worker.flights import Flight
from rowsweep.worker.run.execution import Execution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rowsweep.jobs.concurrency import Cap
    from rowsweep.jobs.handle import JobHandle
    from rowsweep.queue.records import Job
    from rowsweep.queue.verdicts import Verdict
    from rowsweep.worker.admission.gate import Gate, Permit
    from rowsweep.worker.equipment import Equipment

SHED_SECONDS: Final = 1.0
_TOGETHER: Final = 64


class Runway(Protocol):
    """What becomes of a flight: it takes off, is flown on a run thread, and is settled."""

    def take_off(self, flights: Sequence[Flight]) -> None:
        """Count them in flight and keep their leases."""

    def fly(self, flights: Sequence[Flight]) -> None:
        """Hand flights of one queue to its run threads."""

    def settle(self, flight: Flight, verdict: Verdict) -> None:
        """Send how its claim ends."""

    def lose(self, flight: Flight, why: str) -> None:
        """Report that a claim is gone."""

    def due_again(self, seconds: float) -> None:
        """Say when a row that was handed back falls due."""


class Admitter:
    """Admit the jobs that a claim brought, one at a time, in the claim loop's thread.

    Those that need nothing to run are flown together, in front of the next that has to ask for something.
    """

    def __init__(self, equipment: Equipment, gate: Gate, runway: Runway) -> None:
        self._worker_id = equipment.worker_id
        self._equipment = equipment
        self._gate = gate
        self._runway = runway
        self._window = equipment.options.visibility_seconds
        self._cleared: list[Flight] = []

    def admit(self, job: Job, handle: JobHandle[Any, Any], claimed_at: float) -> Flight | None:
        """Start a job's run, by the next `fly` at the latest, or end its claim.

        Answers what is executed or refused, None where it was shed, or where the claim's window is over already: its
        answer came late, and another may have the job. Where the slots cannot be asked for, that failure is raised and
        the row is left to its visibility timeout.
        """
        if self._is_lost(job, handle, claimed_at):
            return None
        if self._gate.is_open_to(handle):
            flight = self._wired(job, handle, claimed_at, None)
            if flight is not None:
                self._cleared.append(flight)
                if len(self._cleared) == _TOGETHER:
                    self.fly()
            return flight
        self.fly()
        answer = self._gate.ask(job, handle, claimed_at)
        if isinstance(answer, Full):
            if self._is_lost(job, handle, claimed_at):
                return None
            if answer.cap is not None and answer.refuses:
                return self._refuse(job, handle, claimed_at, answer.cap)
            self._shed(job, handle, claimed_at, reason=answer.reason)
            return None
        flight = self._wired(job, handle, claimed_at, answer)
        if flight is not None:
            flight.permit = answer if answer.holds_something else None
            self._runway.take_off([flight])
            if answer.held:
                self._gate.slots.start_renewal(job.id, flight.signal.abort)
            self._runway.fly([flight])
        return flight

    def fly(self) -> None:
        """Start the runs that were admitted and have not begun."""
        if self._cleared:
            cleared, self._cleared = self._cleared, []
            self._runway.take_off(cleared)
            self._runway.fly(cleared)

    def hand_back(self, job: Job, handle: JobHandle[Any, Any], claimed_at: float) -> None:
        """Give back a claim that came while the worker was closing."""
        self._end(Flight(job, handle, RunSignal(), claimed_at=claimed_at), GiveBack())

    def _is_lost(self, job: Job, handle: JobHandle[Any, Any], claimed_at: float) -> bool:
        """Say whether the claim's window is over before its run began, as behind a pause of this process; report it."""
        if self._equipment.clock.monotonic() - claimed_at < self._window:
            return False
        flight = Flight(job, handle, RunSignal(), claimed_at=claimed_at)
        self._runway.lose(flight, f"its run could not begin within {self._window:g} s")
        return True

    def _wired(self, job: Job, handle: JobHandle[Any, Any], claimed_at: float, permit: Permit | None) -> Flight | None:
        """Wire a job's run; where the application's `context()` raises, shed it: its row must not wait for a lapse."""
        try:
            return self._wire(job, handle, claimed_at)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the application raised
            emit("jobs.worker.tick-failed", worker_id=self._worker_id, queue=job.queue, error=error)
            if permit is not None:
                self._gate.abandon(permit)
            self._shed(job, handle, claimed_at, reason="context")
            return None

    def _wire(self, job: Job, handle: JobHandle[Any, Any], claimed_at: float) -> Flight:
        context = self._equipment.context()
        outer = getattr(context, "signal", None)
        drain = self._equipment.drain_signal
        parents = [drain] if outer is None else [drain, outer]
        return Flight(
            job,
            handle,
            RunSignal.composed(*parents),
            claimed_at=claimed_at,
            services=getattr(context, "services", None),
            lock=self._equipment.flights.lock,
        )

    def _shed(self, job: Job, handle: JobHandle[Any, Any], claimed_at: float, *, reason: str) -> None:
        delay = SHED_SECONDS + random.random() * SHED_SECONDS
        emit(
            "jobs.worker.shed",
            worker_id=self._worker_id,
            queue=job.queue,
            job=job.name,
            job_id=str(job.id),
            reason=reason,
            delay_seconds=round(delay, 3),
        )
        flight = Flight(job, handle, RunSignal(), claimed_at=claimed_at)
        self._end(flight, Shed(delay_seconds=delay, reason=reason))
        self._runway.due_again(delay)

    def _refuse(self, job: Job, handle: JobHandle[Any, Any], claimed_at: float, cap: Cap) -> Flight:
        """End a job for good that does not wait for its key; its attempt counts, its body never runs."""
        error = key_busy(cap, job.id)
        failure = failure_for_row(error, stop_reason="busy")
        flight = Flight(job, handle, RunSignal(), claimed_at=claimed_at)
        flight.execution = Execution(
            outcome="refused", job_id=job.id, job=job.name, attempt=job.attempt, duration_ms=0, error=error
        )
        emit(
            "jobs.attempt.failed",
            job=job.name,
            job_id=str(job.id),
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            stop_reason=failure.stop_reason,
            resume_at=None,
            error=error,
        )
        self._end(flight, Refuse(error=failure))
        return flight

    def _end(self, flight: Flight, verdict: Verdict) -> None:
        """Settle a claim whose run never began."""
        flight.end()
        self._runway.take_off([flight])
        self._runway.settle(flight, verdict)
