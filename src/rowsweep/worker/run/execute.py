"""One run: its input parsed, its tenant and attribution installed, its body called, its end decided."""

from __future__ import annotations

import inspect
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rowsweep.errors import Aborted
from rowsweep.jobs import ambient
from rowsweep.jobs.ambient import Surroundings
from rowsweep.jobs.ctx import Actor
from rowsweep.steps.context import RunCtx
from rowsweep.steps.options import StepOptions
from rowsweep.steps.runner import StepRunner
from rowsweep.telemetry.events import emit
from rowsweep.worker.run.execution import Execution
from rowsweep.worker.run.verdict import conclude, is_rate_limited

if TYPE_CHECKING:
    from rowsweep.clock import Clock
    from rowsweep.queue.contract import Driver
    from rowsweep.worker.flights import Flight
    from rowsweep.worker.run.execution import Ending
    from rowsweep.worker.run.loop import LoopThread


class Executor:
    """Execute claimed jobs; nothing a body raises comes out of it."""

    def __init__(self, *, driver: Driver, clock: Clock, loop: LoopThread) -> None:
        self._driver = driver
        self._clock = clock
        self._loop = loop

    def execute(self, flight: Flight) -> Ending | None:
        """Run one flight to its end, leave the report on it, and answer how its claim ends.

        Answers None where its end was decided elsewhere, so that there is nothing left to settle.
        """
        started_at = self._clock.monotonic()
        runner = StepRunner(
            driver=self._driver,
            claim=flight.claim,
            run_id=flight.job.run_id,
            signal=flight.signal,
            options=StepOptions.of(flight.handle.options),
        )
        result, error = None, None
        try:
            result = self._body(flight, runner)
        except BaseException as raised:  # noqa: BLE001 - whatever a body raises ends its attempt, never its thread
            error = raised
        finally:
            runner.end()
        if not flight.end():
            return None
        ending = conclude(flight, runner, result=result, error=error, chance=random.random())
        duration_ms = round((self._clock.monotonic() - started_at) * 1000)
        flight.execution = self._report(flight, runner, ending, duration_ms)
        _log_failure(flight, ending, flight.execution)
        flight.signal.abort(_over(flight))
        return ending

    def _body(self, flight: Flight, runner: StepRunner) -> Any:
        job, handle = flight.job, flight.handle
        value = handle.options.input.parse(job.input)
        tenant = handle.tenant_for(value)
        ctx = RunCtx(
            driver=self._driver,
            record=job,
            runner=runner,
            signal=flight.signal,
            actor=Actor(tenant=tenant),
            services=flight.services,
            read_wanted=lambda: flight.wanted,
        )
        surroundings = Surroundings(attribution=f"job:{job.name}:{job.id}", tenant=tenant)
        with ambient.inside_run(surroundings):
            runner.check_open()
            answer = handle.body(ctx, value) if handle.takes_input else handle.body(ctx)
            return self._loop.run(answer, flight.signal) if inspect.isawaitable(answer) else answer

    def _report(self, flight: Flight, runner: StepRunner, ending: Ending, duration_ms: int) -> Execution:
        delay, resume_at = ending.delay_seconds, ending.resume_at
        if resume_at is None and delay is not None:
            resume_at = self._clock.now() + timedelta(seconds=delay)
        return Execution(
            outcome=ending.outcome,
            job_id=flight.job.id,
            job=flight.job.name,
            attempt=flight.job.attempt,
            duration_ms=duration_ms,
            error=ending.error,
            resume_at=resume_at,
            steps=runner.trace.steps,
            replayed=runner.trace.replayed,
        )


def _log_failure(flight: Flight, ending: Ending, execution: Execution) -> None:
    job = flight.job
    named = {"job": job.name, "job_id": str(job.id), "attempt": job.attempt}
    if is_rate_limited(ending):
        emit("jobs.attempt.rate_limited", delay_seconds=ending.delay_seconds, error=ending.error, **named)
    elif ending.outcome in {"retried", "dead-lettered", "dropped"}:
        failure = getattr(ending.verdict, "error", None)
        emit(
            "jobs.attempt.failed",
            max_attempts=job.max_attempts,
            stop_reason=getattr(failure, "stop_reason", None),
            resume_at=execution.resume_at,
            error=ending.error,
            **named,
        )


def _over(flight: Flight) -> Aborted:
    return Aborted(
        f"The execution of job {flight.job.id} is over.",
        fix="keep no thread of a body running after the body returned",
    )
