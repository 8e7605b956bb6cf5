"""The seven outcomes of a run: what each leaves on the row, in the counters, in the log, and whom it tells."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args
from uuid import UUID

import pytest

from rowsweep.clock import real_monotonic
from rowsweep.errors import RateLimited
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.attempts.settled import Settled
from rowsweep.jobs.concurrency import Keyed
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.jobs.handle import JobHandle
from rowsweep.queue.stores.counters import CounterBucket
from rowsweep.worker.run.execution import Outcome
from tests.worker.shop import Shop, logged, until

LATER = Retry(attempts=3, base="2m")
COUNTERS = ("completed", "retried", "deferred", "dead", "dropped", "refused")


class Fatal(Exception):
    """An application's error that is not worth another try."""

    retry = "terminal"
    code = "X_SHOP_CLOSED"


@dataclass(frozen=True)
class Case:
    """One way a run ends: how its job is declared, what its body does, and what is left then."""

    name: str
    outcome: Outcome
    does: Callable[[Ctx], Any]
    state: str
    attempt: int = 1
    counter: str | None = None
    stop_reason: str | None = None
    code: str | None = None
    retry: Retry = LATER
    told: bool = False
    failed: str | None = None


def fail(error: BaseException) -> Callable[[Ctx], Any]:
    """Answer a body that raises."""

    def body(ctx: Ctx) -> None:
        ctx.progress(1, 2)
        raise error

    return body


def finish(ctx: Ctx) -> str:
    """Return."""
    ctx.progress(1, 2)
    return "fine"


def sleep(ctx: Ctx) -> None:
    """Wait for an hour."""
    ctx.progress(1, 2)
    ctx.step.sleep("long", "1h")


def hold_on(ctx: Ctx) -> None:
    """Go on until the drain cuts off."""
    ctx.progress(1, 2)
    assert ctx.signal.wait(60)
    ctx.signal.raise_if_aborted()


CASES = [
    Case("returned", "completed", finish, "done", counter="completed", told=True),
    Case("slept", "suspended", sleep, "suspended", attempt=0),
    Case("failed", "retried", fail(ValueError("no")), "ready", counter="retried", failed="jobs.attempt.failed"),
    Case(
        "limited",
        "retried",
        fail(RateLimited("slow down", fix="wait", retry_after_seconds=60)),
        "ready",
        attempt=0,
        counter="deferred",
        code="X_RATE_LIMITED",
        failed="jobs.attempt.rate_limited",
    ),
    Case(
        "hopeless",
        "dead-lettered",
        fail(Fatal("closed")),
        "dead",
        counter="dead",
        stop_reason="terminal",
        code="X_SHOP_CLOSED",
        told=True,
        failed="jobs.attempt.failed",
    ),
    Case(
        "spent",
        "dead-lettered",
        fail(ValueError("no")),
        "dead",
        counter="dead",
        stop_reason="attempts",
        retry=Retry(attempts=1),
        told=True,
        failed="jobs.attempt.failed",
    ),
    Case(
        "forgotten",
        "dropped",
        fail(ValueError("no")),
        "failed",
        counter="dropped",
        stop_reason="attempts",
        retry=Retry(attempts=1, dead_letter=False),
        told=True,
        failed="jobs.attempt.failed",
    ),
    Case(
        "crowded",
        "refused",
        finish,
        "failed",
        counter="refused",
        stop_reason="busy",
        code="X_JOB_KEY_BUSY",
        told=True,
        failed="jobs.attempt.failed",
    ),
    Case("cut off", "interrupted", hold_on, "ready", attempt=0),
]


def declare(case: Case, told: list[Settled[Any, Any]]) -> JobHandle[Any, Any]:
    """Declare the case's job; the one that is refused shares a key with a run that holds it."""
    keyed = Keyed(str, when_busy="fail") if case.outcome == "refused" else None

    def body(ctx: Ctx, _: str) -> Any:
        return case.does(ctx)

    return job("act", body, tenant="none", input=str, retry=case.retry, concurrency=keyed, on_settled=told.append)


def take_key(shop: Shop) -> None:
    """Let another worker's run hold the key."""
    from rowsweep.queue.records import Claim

    slots = shop.driver.stores().slots
    assert slots is not None
    other = Claim(job_id=UUID(int=1), worker_id="other", claim=1)
    assert slots.acquire("job:act:a", limit=1, ttl_seconds=60.0, claim=other) is not None


def counted(shop: Shop) -> dict[str, int]:
    """Answer what was counted of the job, over all buckets."""
    store = shop.driver.stores().counters
    assert store is not None
    buckets: list[CounterBucket] = store.list(name="act")
    return {name: amount for name in COUNTERS if (amount := sum(getattr(bucket, name) for bucket in buckets))}


def test_the_cases_are_all_the_outcomes_there_are() -> None:
    """S-121."""
    assert {case.outcome for case in CASES} == set(get_args(Outcome))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_run_ends_in_one_of_seven_ways(shop: Shop, caplog: pytest.LogCaptureFixture, case: Case) -> None:
    """S-120, S-121, N-033, S-131, S-312, S-404, S-405, S-408, S-412, D-31: row, counter, log and hook agree."""
    caplog.set_level(logging.INFO, "rowsweep")
    told: list[Settled[Any, Any]] = []
    act = declare(case, told)
    if case.outcome == "refused":
        take_key(shop)
    job_id = shop.enqueue(act, "a")
    worker = shop.running(margin="4800ms")
    if case.outcome == "interrupted":
        until(lambda: shop.job(job_id).progress is not None)
        worker.stop(deadline_at=real_monotonic() + 5)
    until(lambda: bool(logged(caplog.records, "jobs.run.finished")))
    until(lambda: worker.stats.in_flight == 0)

    row = shop.job(job_id)
    assert (row.state, row.attempt, row.claims) == (case.state, case.attempt, 1)
    assert (row.stop_reason, row.last_error_code) == (case.stop_reason, case.code)
    assert (row.last_error is not None) is (case.failed is not None)
    assert row.progress == (None if case.outcome == "refused" else {"current": 1, "total": 2, "message": None})
    assert row.result == ("fine" if case.outcome == "completed" else None)

    assert counted(shop) == ({} if case.counter is None else {case.counter: 1})
    assert worker.stats.outcomes == {case.outcome: 1}

    (finished,) = logged(caplog.records, "jobs.run.finished")
    assert (finished["outcome"], finished["job_id"], finished["attempt"]) == (case.outcome, str(job_id), 1)
    said = [event for event in ("jobs.attempt.failed", "jobs.attempt.rate_limited") if logged(caplog.records, event)]
    assert said == ([] if case.failed is None else [case.failed])
    for failure in logged(caplog.records, "jobs.attempt.failed"):
        assert failure["stop_reason"] == row.stop_reason, "row and log carry the same"

    assert [(settled.outcome, settled.job_id) for settled in told] == ([(case.outcome, job_id)] if case.told else [])
    for settled in told:
        assert (settled.error, settled.code) == (row.last_error, row.last_error_code)


def test_a_failed_attempt_is_logged_louder_once_it_was_the_last(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-131, D-31: a warning while tries are left, an error with the stop reason when none are."""
    caplog.set_level(logging.INFO, "rowsweep")

    @job("act", tenant="none", retry=Retry(attempts=2, base="0s"))
    def act(ctx: Ctx) -> None:
        raise ValueError("no")

    job_id = shop.enqueue(act)
    shop.running()
    shop.until_state(job_id, "dead")
    until(lambda: len(logged(caplog.records, "jobs.attempt.failed")) == 2)
    records = [record for record in caplog.records if record.getMessage() == "jobs.attempt.failed"]
    said = [(record.levelname, record.fields["stop_reason"]) for record in records]  # type: ignore[attr-defined]
    assert said == [("WARNING", None), ("ERROR", "attempts")]


def test_an_execution_reports_its_end_to_whoever_ticks(shop: Shop) -> None:
    """S-120: outcome, ids, attempt, duration, error, when it goes on, and its steps."""
    gate = threading.Event()

    @job("act", tenant="none", retry=Retry(attempts=3, base="2m", jitter=False))
    def act(ctx: Ctx) -> None:
        ctx.step.run("one", lambda: 1)
        if gate.is_set():
            return
        gate.set()
        raise ValueError("no")

    job_id = shop.enqueue(act)
    worker = shop.worker()
    (first,) = worker.tick()
    assert (first.outcome, first.job, first.job_id, first.attempt) == ("retried", "act", job_id, 1)
    assert (first.steps, first.replayed, str(first.error)) == (("one",), (), "no")
    assert first.resume_at is not None
    shop.make_due(job_id)
    (second,) = worker.tick()
    assert (second.outcome, second.attempt, second.error, second.resume_at) == ("completed", 2, None, None)
    assert (second.steps, second.replayed) == ((), ("one",))
    assert second.duration_ms >= 0
