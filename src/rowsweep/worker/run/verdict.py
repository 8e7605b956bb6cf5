"""From what a run did to how its claim ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rowsweep.errors import Aborted, AttemptsExhausted, Draining, Interrupted, LeaseLost, RateLimited, Suspend
from rowsweep.jobs.attempts.classify import Again, decide
from rowsweep.jobs.attempts.failure import failure_for_row, headline
from rowsweep.jobs.values.json_form import NoJsonForm, json_form, json_text, safe_json
from rowsweep.queue.verdicts import Bury, Defer, Done, Drop, GiveBack, Park, Retry
from rowsweep.telemetry.events import emit
from rowsweep.worker.run.deadlines import overdue
from rowsweep.worker.run.execution import Ending

if TYPE_CHECKING:
    from rowsweep.errors import RowsweepError
    from rowsweep.jobs.attempts.classify import Stop
    from rowsweep.jobs.values.json_form import Json
    from rowsweep.queue.records import Job
    from rowsweep.signals import RunSignal
    from rowsweep.steps.runner import StepRunner
    from rowsweep.worker.flights import Flight

MAX_RESULT_BYTES: Final = 256 * 1024
_DONE: Final = Done()
# Most runs end in the very same way, and nothing changes an ending.
_COMPLETED: Final = Ending(outcome="completed", verdict=_DONE)


def conclude(
    flight: Flight, runner: StepRunner | None, *, result: Any, error: BaseException | None, chance: float
) -> Ending:
    """Decide a run's end from the run, not from what came out of its body; `chance` is uniform in [0, 1).

    A claim that is gone ends it, then a suspension it asked for, then a deadline it passed, then what the body did. A
    failure under a drain's abort is an interruption, whatever was raised.
    """
    if error is None and runner is None and result is None and flight.revoked is None and not flight.signal.aborted:
        return _COMPLETED
    lost, suspension, has_restarted = _of_steps(runner)
    gone = flight.revoked or lost or (None if error is None else _found_gone(flight, error))
    if gone is not None:
        return Ending(outcome="interrupted", verdict=None, error=gone)
    suspension = suspension or (error if isinstance(error, Suspend) else None)
    if suspension is not None:
        return _suspended(suspension)
    late = overdue(flight.signal) if flight.signal.aborted else None
    if late is not None:
        error = _found_late(late, error)
    if error is None and runner is not None:
        error = runner.never_awaited()
    if error is None:
        return Ending(
            outcome="completed", verdict=_DONE if result is None else Done(result=result_form(flight.job, result))
        )
    if _is_drained(error, flight.signal):
        return Ending(outcome="interrupted", verdict=GiveBack(), error=error)
    attempt = 1 if has_restarted else flight.job.attempt
    return failed(flight, _underlying(error), attempt=attempt, chance=chance)


def _of_steps(runner: StepRunner | None) -> tuple[LeaseLost | None, Suspend | None, bool]:
    """Answer what a run's steps found out of how it ends, where it has any."""
    return (None, None, False) if runner is None else (runner.lost, runner.suspension, runner.has_restarted)


def failed(flight: Flight, error: BaseException, *, attempt: int, chance: float) -> Ending:
    """Decide what follows a failed attempt, by the job's own policy."""
    job, policy = flight.job, flight.handle.retry
    decision = decide(error, attempt=attempt, max_attempts=job.max_attempts, policy=policy, chance=chance)
    if not isinstance(decision, Again):
        return _stopped(flight, error, decision)
    failure = failure_for_row(error)
    verdict = Retry if decision.counted else Defer
    return Ending(
        outcome="retried",
        verdict=verdict(delay_seconds=decision.delay_seconds, error=failure),
        error=error,
        delay_seconds=decision.delay_seconds,
    )


def result_form(job: Job, result: Any) -> Json:
    """Answer what the row keeps of a result: its JSON form up to 256 KiB, else null."""
    try:
        form = json_form(result)
    except NoJsonForm as error:
        if error.__cause__ is not None:
            emit("jobs.result.unstorable", job=job.name, job_id=str(job.id), reason=str(error))
            return None
        form = safe_json(result)
    if form is None:
        return None
    size = len(json_text(form).encode())
    if size > MAX_RESULT_BYTES:
        reason = f"its JSON form is {size:,} bytes; the limit is {MAX_RESULT_BYTES:,}"
        emit("jobs.result.unstorable", job=job.name, job_id=str(job.id), reason=reason)
        return None
    return form


def is_rate_limited(ending: Ending) -> bool:
    """Say whether the run was deferred for a rate limit, which is no failure."""
    return isinstance(ending.error, RateLimited) and isinstance(ending.verdict, Defer)


def _suspended(request: Suspend) -> Ending:
    verdict = Park(wake_at=request.wake_at, delay_seconds=request.delay_seconds, pausing=request.reason == "pause")
    return Ending(outcome="suspended", verdict=verdict, delay_seconds=request.delay_seconds, resume_at=request.wake_at)


def _found_late(late: RowsweepError, error: BaseException | None) -> RowsweepError:
    """Answer the deadline that was passed, with what the body made of it."""
    if error is not None and error is not late and not isinstance(error, Interrupted):
        late.add_note(f"Its body ended with {headline(error):.500}")
    return late


def _found_gone(flight: Flight, error: BaseException) -> RowsweepError | None:
    """Answer why the claim is gone where the body found out first: by a fence, or by its ledger row's `cancel`."""
    if isinstance(error, LeaseLost):
        return error
    if not isinstance(error, Interrupted) or not isinstance(error.reason, Aborted):
        return None
    return error.reason if flight.handle.has_ledger and not flight.signal.aborted else None


def _is_drained(error: BaseException, signal: RunSignal) -> bool:
    if signal.aborted:
        return isinstance(signal.reason, Draining)
    return isinstance(error, Interrupted) and signal.draining


def _underlying(error: BaseException) -> BaseException:
    """Answer the reason of an interruption, which is what happened; its carrier says nothing."""
    return error.reason if isinstance(error, Interrupted) and error.reason is not None else error


def _stopped(flight: Flight, error: BaseException, decision: Stop) -> Ending:
    failure = failure_for_row(error, stop_reason=decision.stop_reason)
    keeps_dead = flight.handle.retry.dead_letter
    return Ending(
        outcome="dead-lettered" if keeps_dead else "dropped",
        verdict=Bury(error=failure) if keeps_dead else Drop(error=failure),
        error=_exhausted(flight.job, error) if decision.stop_reason == "attempts" else error,
    )


def _exhausted(job: Job, error: BaseException) -> AttemptsExhausted:
    exhausted = AttemptsExhausted(
        f"The job {job.name!r} ({job.id}) failed on attempt {job.attempt} of {job.max_attempts}: "
        f"{headline(error):.500}",
        fix=f"rowsweep jobs show {job.id}, then rowsweep jobs requeue {job.id}",
        meta={"job_id": str(job.id), "attempt": job.attempt},
    )
    exhausted.__cause__ = error
    return exhausted
