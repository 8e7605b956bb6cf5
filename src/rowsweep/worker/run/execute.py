"""One run: its input parsed, its tenant and attribution installed, its body called, its end decided."""

from __future__ import annotations

import inspect
import random
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rowsweep.errors import Aborted
from rowsweep.jobs import ambient
from rowsweep.jobs.ambient import Surroundings
from rowsweep.jobs.attempts.failure import headline
from rowsweep.jobs.ctx import Actor
from rowsweep.steps.context import RunCtx
from rowsweep.steps.options import StepOptions
from rowsweep.steps.runner import StepRunner
from rowsweep.telemetry.events import emit
from rowsweep.telemetry.instruments import Run, is_traced, start_run
from rowsweep.worker.run.deadlines import job_is_late
from rowsweep.worker.run.execution import Execution
from rowsweep.worker.run.verdict import conclude, is_rate_limited

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from rowsweep.clock import Clock
    from rowsweep.errors import RowsweepError
    from rowsweep.queue.contract import Driver
    from rowsweep.telemetry.instruments import RunSpan
    from rowsweep.worker.flights import Flight
    from rowsweep.worker.run.deadlines import Deadlines
    from rowsweep.worker.run.execution import Ending
    from rowsweep.worker.run.loop import LoopThread
    from rowsweep.worker.run.progress import ProgressWriter


_NOBODY: Final = Actor()


class Executor:
    """Execute claimed jobs; nothing a body raises comes out of it."""

    def __init__(
        self, *, driver: Driver, clock: Clock, loop: LoopThread, deadlines: Deadlines, progress: ProgressWriter
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._loop = loop
        self._deadlines = deadlines
        self._new_progress = progress.reporter
        self._new_runner = self._runner

    def execute(self, flight: Flight) -> Ending | None:
        """Run one flight to its end, leave the report on it, and answer how its claim ends.

        Answers None where its end was decided elsewhere, so that there is nothing left to settle.
        """
        flight.started_at = self._clock.monotonic()
        flight.new_progress = self._new_progress
        disarm = self._armed(flight)
        span = start_run(_as_span(flight)) if is_traced() else None
        result, error = None, None
        try:
            result = self._body(flight)
        except BaseException as raised:  # noqa: BLE001 - whatever a body raises ends its attempt, never its thread
            error = raised
        finally:
            flight.end_steps()
        try:
            return self._end(flight, result, error)
        finally:
            if disarm is not None:
                disarm()
            flight.signal.abort(partial(_over, flight.job.id))
            if flight.runner is not None:
                flight.runner = None
            if span is not None:
                _end_span(span, flight.execution)

    def leave_behind(self, flight: Flight, late: RowsweepError) -> Ending | None:
        """End a run whose body goes on past its deadline: it writes nothing more, and its claim ends as a failure."""
        flight.end_steps()
        return self._end(flight, None, late)

    def _end(self, flight: Flight, result: Any, error: BaseException | None) -> Ending | None:
        if not flight.end():
            return None
        runner = flight.runner
        ending = conclude(flight, runner, result=result, error=error, chance=random.random())
        duration_ms = round((self._clock.monotonic() - flight.started_at) * 1000)
        if flight.handle.options.on_settled is not None:
            flight.result = result
        flight.execution = self._report(flight, runner, ending, duration_ms)
        if ending.error is not None:
            _log_failure(flight, ending, flight.execution)
        return ending

    def _armed(self, flight: Flight) -> Callable[[], None] | None:
        """Arm the job's deadline; answer what takes it away, None without one."""
        timeout = flight.handle.options.timeout
        if timeout is None:
            return None
        return self._deadlines.arm(flight, timeout.total_seconds(), job_is_late(flight, timeout))

    def _runner(self, flight: Flight) -> StepRunner:
        options = StepOptions.of(flight.handle.options)
        return StepRunner(
            driver=self._driver,
            claim=flight.claim,
            run_id=flight.job.run_id,
            signal=flight.signal,
            options=options,
            arm=None if options.step_timeout is None else partial(self._deadlines.arm, flight),
        )

    def _body(self, flight: Flight) -> Any:
        job, handle = flight.job, flight.handle
        value = handle.options.input.parse(job.input)
        tenant = handle.tenant_for(value)
        ctx = RunCtx(
            driver=self._driver,
            actor=_NOBODY if tenant is None else Actor(tenant=tenant),
            run=flight,
            new_runner=self._new_runner,
        )
        token = ambient.enter_run(Surroundings(job.name, job.id, tenant, job.claimed_by))
        try:
            flight.signal.raise_if_aborted()
            answer = handle.body(ctx, value) if handle.takes_input else handle.body(ctx)
            is_awaitable = answer is not None and inspect.isawaitable(answer)
            return self._loop.run(answer, flight.signal) if is_awaitable else answer
        finally:
            ambient.leave_run(token)

    def _report(self, flight: Flight, runner: StepRunner | None, ending: Ending, duration_ms: int) -> Execution:
        job = flight.job
        if ending.error is None and runner is None:
            return Execution(
                outcome=ending.outcome, job_id=job.id, job=job.name, attempt=job.attempt, duration_ms=duration_ms
            )
        trace = runner.trace if runner is not None and runner.has_steps else None
        delay, resume_at = ending.delay_seconds, ending.resume_at
        if resume_at is None and delay is not None:
            resume_at = self._clock.now() + timedelta(seconds=delay)
        return Execution(
            outcome=ending.outcome,
            job_id=job.id,
            job=job.name,
            attempt=job.attempt,
            duration_ms=duration_ms,
            error=ending.error,
            resume_at=resume_at,
            steps=() if trace is None else trace.steps,
            replayed=() if trace is None else trace.replayed,
            deferred=is_rate_limited(ending),
        )


def _log_failure(flight: Flight, ending: Ending, execution: Execution) -> None:
    job = flight.job
    named = {"job": job.name, "job_id": str(job.id), "attempt": job.attempt}
    if is_rate_limited(ending):
        emit("jobs.attempt.rate_limited", **named, delay_seconds=ending.delay_seconds, error=ending.error)
    elif ending.outcome in {"retried", "dead-lettered", "dropped"}:
        failure = getattr(ending.verdict, "error", None)
        emit(
            "jobs.attempt.failed",
            **named,
            max_attempts=job.max_attempts,
            stop_reason=getattr(failure, "stop_reason", None),
            resume_at=execution.resume_at,
            error=ending.error,
        )


def _as_span(flight: Flight) -> Run:
    job = flight.job
    return Run(
        job=job.name,
        queue=job.queue,
        job_id=str(job.id),
        run_id=str(job.run_id),
        attempt=job.attempt,
        traceparent=job.traceparent,
    )


def _end_span(span: RunSpan, execution: Execution | None) -> None:
    """End a run's span; a run whose end was never decided, as when the process goes down, was interrupted."""
    failure = None if execution is None else execution.failure
    span.end("interrupted" if execution is None else execution.outcome, None if failure is None else headline(failure))


def _over(job_id: UUID) -> Aborted:
    return Aborted(
        f"The execution of job {job_id} is over.",
        fix="keep no thread of a body running after the body returned",
    )
