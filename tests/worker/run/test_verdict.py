"""How a run ends, decided from the run and not from what came out of its body."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import pytest

from rowsweep.errors import (
    Aborted,
    Draining,
    Interrupted,
    LeaseLost,
    Overloaded,
    RateLimited,
    RowsweepError,
    Suspend,
)
from rowsweep.jobs.attempts.retry import Retry as Policy
from rowsweep.jobs.handle import JobHandle, JobOptions
from rowsweep.jobs.origin import origin_of
from rowsweep.jobs.values.inputs import InputType
from rowsweep.queue.contract import Driver
from rowsweep.queue.records import Job, claim_of
from rowsweep.queue.verdicts import Bury, Defer, Done, Drop, GiveBack, Park, Retry
from rowsweep.signals import RunSignal
from rowsweep.steps.runner import StepRunner
from rowsweep.worker.flights import Flight
from rowsweep.worker.run.execution import Ending
from rowsweep.worker.run.verdict import conclude

AT = datetime(2025, 1, 1, tzinfo=UTC)
LOST = LeaseLost("gone", fix="none")
DRAIN = Draining("deploy", fix="none")


def a_job(**changes: Any) -> Job:
    """Answer a running job's row."""
    given: dict[str, Any] = dict.fromkeys(Job.__dataclass_fields__)
    given |= {"id": UUID(int=1), "run_id": UUID(int=2), "name": "j", "queue": "default", "state": "running"}
    given |= {"attempt": 1, "max_attempts": 3, "claims": 1, "claimed_by": "w", "run_at": AT, "priority": 0}
    return Job(**(given | changes))


def ended(
    error: BaseException | None = None,
    *,
    result: Any = None,
    policy: Policy | None = None,
    abort: RowsweepError | None = None,
    drains: bool = False,
    revoke: RowsweepError | None = None,
    suspension: Suspend | None = None,
    lost: LeaseLost | None = None,
    kind: str = "job",
    **row: Any,
) -> Ending:
    """Conclude a run that ended like this."""
    options = JobOptions(
        tenant="none",
        input=InputType(None, job="j"),
        queue="default",
        priority=0,
        key=None,
        retry=policy or Policy(attempts=3, base="10s", jitter=False),
        kind=kind,
    )
    handle: JobHandle[None, Any] = JobHandle("j", lambda _: None, options, origin=origin_of(), named=True)
    flight = Flight(a_job(**row), handle, RunSignal(), claimed_at=0.0)
    if drains:
        flight.signal.set_draining()
    if abort is not None:
        flight.signal.abort(abort)
    if revoke is not None:
        flight.revoke(revoke)
    runner = StepRunner(
        driver=cast("Driver", None), claim=claim_of(flight.job), run_id=flight.job.run_id, signal=flight.signal
    )
    runner.suspension, runner.lost = suspension, lost
    return conclude(flight, runner, result=result, error=error, chance=0.5)


def test_what_a_body_returns_is_its_result() -> None:
    """S-109."""
    assert ended(result={"a": 1}) == Ending(outcome="completed", verdict=Done(result={"a": 1}))


@pytest.mark.parametrize("how", [{"revoke": LOST}, {"lost": LOST}])
@pytest.mark.parametrize("error", [None, ValueError("x"), Suspend(), Interrupted(DRAIN)])
def test_a_lost_claim_outranks_everything(how: dict[str, Any], error: BaseException | None) -> None:
    """N-120: interrupted, nothing to settle."""
    ending = ended(error, suspension=Suspend(), **how)
    assert (ending.outcome, ending.verdict, ending.error) == ("interrupted", None, LOST)


def test_a_lost_claim_that_only_the_body_found_counts_as_lost() -> None:
    """N-120: a batch's own closing statement is a fence too."""
    ending = ended(LOST)
    assert (ending.outcome, ending.verdict, ending.error) == ("interrupted", None, LOST)


def test_a_sweep_that_reads_its_own_cancel_has_nothing_to_settle() -> None:
    """N-079, N-081: its job went with the ledger row, before the watch saw it; a plain job fails."""
    error = Interrupted(Aborted("cancelled", fix="none"))
    assert ended(error, kind="backfill").verdict is None
    assert isinstance(ended(error).verdict, Retry)


@pytest.mark.parametrize("error", [None, ValueError("x"), Interrupted(DRAIN), SystemExit()])
def test_a_suspension_that_was_asked_for_outranks_what_came_out(error: BaseException | None) -> None:
    """N-020."""
    ending = ended(error, suspension=Suspend(delay_seconds=7.0))
    assert (ending.outcome, ending.verdict) == ("suspended", Park(delay_seconds=7.0))


def test_the_reason_pause_pauses_the_ledger_row() -> None:
    """N-080."""
    assert ended(suspension=Suspend(delay_seconds=1.0, reason="pause")).verdict == Park(delay_seconds=1.0, pausing=True)


def test_an_error_under_a_drains_abort_is_an_interruption_whatever_it_is() -> None:
    """S-299, S-115."""
    for error in (ValueError("x"), Interrupted(DRAIN), SystemExit(), RateLimited("x", fix="y")):
        ending = ended(error, abort=DRAIN)
        assert (ending.outcome, ending.verdict) == ("interrupted", GiveBack())
    assert ended(abort=DRAIN).outcome == "completed"


def test_while_draining_only_an_interruption_is_handed_back() -> None:
    """N-042: an error of its own stays a failed attempt."""
    assert ended(Interrupted(DRAIN), drains=True).verdict == GiveBack()
    assert ended(ValueError("x"), drains=True).outcome == "retried"


def test_an_abort_from_outside_fails_the_attempt_with_its_reason() -> None:
    """S-146: the reason's code is the row's."""
    ending = ended(Interrupted(Aborted("the operator", fix="none")), abort=Aborted("the operator", fix="none"))
    assert isinstance(ending.verdict, Retry)
    assert ending.verdict.error.code == "X_ABORTED"


def test_failures_follow_the_policy() -> None:
    """S-122, S-125, S-127, S-134, S-136, D-10."""
    again = ended(ValueError("x"), attempt=2)
    assert isinstance(again.verdict, Retry)
    assert (again.outcome, again.verdict.delay_seconds, again.delay_seconds) == ("retried", 20.0, 20.0)
    stated = ended(Overloaded("x", fix="y", retry_after_seconds=42.0))
    assert isinstance(stated.verdict, Retry)
    assert stated.verdict.delay_seconds == 42.0
    deferred = ended(RateLimited("x", fix="y"), attempt=3)
    assert isinstance(deferred.verdict, Defer)
    assert (deferred.outcome, deferred.verdict.delay_seconds) == ("retried", 30.0)


@pytest.mark.parametrize(("dead_letter", "outcome", "kind"), [(True, "dead-lettered", Bury), (False, "dropped", Drop)])
def test_the_last_attempt_ends_the_job(dead_letter: bool, outcome: str, kind: type) -> None:
    """S-131, S-133, S-135, S-136."""
    cause = ValueError("the last straw")
    ending = ended(cause, policy=Policy(attempts=3, dead_letter=dead_letter), attempt=3)
    assert (ending.outcome, type(ending.verdict)) == (outcome, kind)
    assert isinstance(ending.verdict, (Bury, Drop))
    assert ending.verdict.error.stop_reason == "attempts"
    assert ending.verdict.error.text.startswith("ValueError: the last straw")
    assert getattr(ending.error, "code", None) == "X_JOB_MAX_ATTEMPTS"
    assert ending.error is not None
    assert ending.error.__cause__ is cause
