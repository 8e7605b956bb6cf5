"""Runs end to end, from enqueue to the row that is left, over both drivers."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any
from uuid import UUID

import pytest

from rowsweep.errors import RateLimited
from rowsweep.jobs import ambient
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.jobs.registry import reset_jobs
from tests.worker.shop import Shop, logged, until

NOW = Retry(attempts=3, base="0s", jitter=False)


def test_a_job_runs_with_its_input_and_keeps_its_result(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-109, S-287, S-120, S-286: completed, counted, logged."""
    caplog.set_level(logging.INFO, "rowsweep")

    @job(tenant="none", input=int)
    def double(ctx: Ctx, number: int) -> dict[str, int]:
        return {"doubled": number * 2}

    job_id = shop.enqueue(double, 21)
    worker = shop.running()
    done = shop.until_state(job_id, "done")
    assert (done.result, done.attempt, done.claims, done.claimed_by) == ({"doubled": 42}, 1, 1, None)
    until(lambda: worker.stats.processed == 1)
    until(lambda: worker.stats.in_flight == 0)
    (started,) = logged(caplog.records, "jobs.worker.started")
    assert (started["worker_id"], started["queues"], started["names"]) == (worker.id, ["default"], ["double"])
    (finished,) = logged(caplog.records, "jobs.run.finished")
    assert (finished["outcome"], finished["job"], finished["attempt"]) == ("completed", "double", 1)


def test_a_body_without_input_gets_the_context_alone(shop: Shop) -> None:
    """N-007, S-031, S-032, S-037, N-011: identity, nobody's tenant, attribution."""
    seen: dict[str, Any] = {}

    @job(tenant="none")
    def look(ctx: Ctx) -> None:
        seen.update(job=ctx.job, id=ctx.job_id, attempt=ctx.attempt, most=ctx.max_attempts, tenant=ctx.actor.tenant)
        seen["attribution"] = ambient.attribution()

    job_id = shop.enqueue(look)
    shop.running()
    shop.until_state(job_id, "done")
    assert seen == {
        "job": "look",
        "id": job_id,
        "attempt": 1,
        "most": 5,
        "tenant": None,
        "attribution": f"job:look:{job_id}",
    }


def test_the_tenant_comes_from_the_declaration_and_not_from_the_row(shop: Shop) -> None:
    """S-031, S-033, S-036."""
    seen: list[tuple[str | None, str | None]] = []

    @job(tenant=lambda value: f"shop-{value}", input=int)
    def act(ctx: Ctx, number: int) -> None:
        seen.append((ctx.actor.tenant, ambient.enclosing_tenant()))

    job_id = shop.enqueue(act, 7, tenant="somebody-else")
    shop.running()
    assert shop.until_state(job_id, "done").tenant_id == "somebody-else"
    assert seen == [("shop-7", "shop-7")]


def test_services_and_signal_come_from_the_context_and_nothing_else_does(shop: Shop) -> None:
    """S-039, S-040, S-144: read defensively, built afresh."""

    class Surroundings:
        services = "the services"

    seen: list[Any] = []

    @job(tenant="none")
    def act(ctx: Ctx) -> None:
        seen.append((ctx.services, ctx.signal.aborted))

    job_id = shop.enqueue(act)
    shop.running(context=Surroundings)
    shop.until_state(job_id, "done")
    assert seen == [("the services", False)]


def test_a_failed_attempt_is_tried_again_and_its_error_is_kept(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-122, S-123, S-130, S-131: the row waits with the error on it."""
    caplog.set_level(logging.INFO, "rowsweep")

    @job(tenant="none", retry=Retry(attempts=3, base="2m", jitter=False))
    def fail(ctx: Ctx) -> None:
        raise ValueError("no \x00 such luck")

    job_id = shop.enqueue(fail)
    shop.running()
    until(lambda: bool(logged(caplog.records, "jobs.run.finished")))
    waiting = shop.job(job_id)
    assert (waiting.state, waiting.attempt, waiting.stop_reason) == ("ready", 1, None)
    assert (waiting.run_at - waiting.updated_at).total_seconds() == pytest.approx(120, abs=2)
    assert waiting.last_error is not None
    assert waiting.last_error.startswith("ValueError: no \\x00 such luck")
    (failed,) = logged(caplog.records, "jobs.attempt.failed")
    assert (failed["attempt"], failed["max_attempts"], failed["stop_reason"]) == (1, 3, None)
    assert logged(caplog.records, "jobs.run.finished")[0]["outcome"] == "retried"


def test_the_last_attempt_leaves_a_dead_letter(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-133, S-135: dead after `attempts` tries."""
    caplog.set_level(logging.INFO, "rowsweep")
    tries: list[int] = []

    @job(tenant="none", retry=NOW)
    def fail(ctx: Ctx) -> None:
        tries.append(ctx.attempt)
        raise ValueError("never")

    job_id = shop.enqueue(fail)
    shop.running()
    dead = shop.until_state(job_id, "dead")
    assert tries == [1, 2, 3]
    assert (dead.attempt, dead.stop_reason) == (3, "attempts")
    until(lambda: len(logged(caplog.records, "jobs.attempt.failed")) == 3)
    last = logged(caplog.records, "jobs.attempt.failed")[-1]
    assert (last["stop_reason"], last["code"]) == ("attempts", "X_JOB_MAX_ATTEMPTS")


def test_a_terminal_error_leaves_the_other_attempts_unspent(shop: Shop) -> None:
    """S-124, D-12."""

    class Forbidden(Exception):
        retry = "terminal"

    @job(tenant="none", retry=NOW)
    def fail(ctx: Ctx) -> None:
        raise Forbidden("no")

    job_id = shop.enqueue(fail)
    shop.running()
    dead = shop.until_state(job_id, "dead")
    assert (dead.attempt, dead.max_attempts, dead.stop_reason) == (1, 3, "terminal")


def test_a_job_without_dead_letter_is_dropped(shop: Shop) -> None:
    """S-136."""

    @job(tenant="none", retry=Retry(attempts=1, dead_letter=False))
    def fail(ctx: Ctx) -> None:
        raise ValueError("no")

    job_id = shop.enqueue(fail)
    worker = shop.running()
    assert shop.until_state(job_id, "failed").stop_reason == "attempts"
    until(lambda: worker.stats.outcomes == {"dropped": 1})


def test_a_rate_limit_costs_no_attempt(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-127, S-128: deferred by what it states, logged at info."""
    caplog.set_level(logging.INFO, "rowsweep")

    @job(tenant="none", retry=Retry(attempts=1, jitter=False))
    def ask(ctx: Ctx) -> None:
        raise RateLimited("full", fix="wait", retry_after_seconds=120.0)

    job_id = shop.enqueue(ask)
    shop.running()
    until(lambda: bool(logged(caplog.records, "jobs.run.finished")))
    waiting = shop.job(job_id)
    assert (waiting.state, waiting.attempt) == ("ready", 0)
    (limited,) = logged(caplog.records, "jobs.attempt.rate_limited")
    assert limited["delay_seconds"] == 120.0
    assert not logged(caplog.records, "jobs.attempt.failed")


def test_an_input_that_no_longer_parses_is_terminal(shop: Shop) -> None:
    """S-041, S-042."""

    @job("typed", tenant="none", input=int)
    def first(ctx: Ctx, value: int) -> None: ...

    job_id = shop.enqueue(first, 3)
    reset_jobs()

    @job("typed", tenant="none", input=dict[str, int], retry=NOW)
    def second(ctx: Ctx, value: dict[str, int]) -> None: ...

    shop.running()
    dead = shop.until_state(job_id, "dead")
    assert (dead.attempt, dead.last_error_code) == (1, "X_JOB_INPUT_INVALID")


@pytest.mark.parametrize("poison", [SystemExit, KeyboardInterrupt, MemoryError, GeneratorExit])
def test_what_would_end_a_thread_only_fails_the_attempt(
    shop: Shop, poison: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """N-020, S-282: the same thread goes on."""
    caplog.set_level(logging.INFO, "rowsweep")

    @job(tenant="none", retry=Retry(attempts=1))
    def die(ctx: Ctx) -> None:
        raise poison

    @job(tenant="none")
    def live(ctx: Ctx) -> str:
        return threading.current_thread().name

    died = shop.enqueue(die)
    worker = shop.running(concurrency=1)
    dead = shop.until_state(died, "dead")
    assert dead.last_error is not None
    assert dead.last_error.startswith(poison.__name__)
    assert shop.until_state(shop.enqueue(live), "done").result == "rowsweep-run-default"
    assert worker.state == "running"
    assert len(logged(caplog.records, "jobs.attempt.failed")) == 1
    assert not logged(caplog.records, "jobs.worker.tick-failed")


def test_an_error_whose_text_raises_is_still_a_failed_attempt(shop: Shop) -> None:
    """S-132."""

    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not telling")

    @job(tenant="none", retry=Retry(attempts=1))
    def fail(ctx: Ctx) -> None:
        raise Rude

    job_id = shop.enqueue(fail)
    shop.running()
    last_error = shop.until_state(job_id, "dead").last_error
    assert last_error is not None
    assert last_error.startswith("Rude")


def test_a_body_may_be_a_coroutine_function(shop: Shop) -> None:
    """N-008: the worker's one loop thread, the same rules, awaitable steps."""
    threads: set[str] = set()

    async def fetched() -> int:
        await asyncio.sleep(0)
        return 3

    @job(tenant="none", input=int, retry=NOW)
    async def gather(ctx: Ctx, number: int) -> list[Any]:
        threads.add(threading.current_thread().name)
        first = await ctx.step.run("fetch", fetched)
        if ctx.attempt == 1:
            raise ValueError("once more")
        return [first, number, ambient.attribution()]

    job_id = shop.enqueue(gather, 4)
    shop.running()
    assert shop.until_state(job_id, "done").result == [3, 4, f"job:gather:{job_id}"]
    assert threads == {"rowsweep-loop"}
    assert shop.job(job_id).attempt == 2


def test_a_system_exit_in_a_coroutine_does_not_end_the_loop(shop: Shop) -> None:
    """N-008, N-020."""

    @job(tenant="none", retry=Retry(attempts=1))
    async def die(ctx: Ctx) -> None:
        raise SystemExit(3)

    @job(tenant="none")
    async def live(ctx: Ctx) -> str:
        return "alive"

    died = shop.enqueue(die)
    shop.running()
    shop.until_state(died, "dead")
    assert shop.until_state(shop.enqueue(live), "done").result == "alive"


@pytest.mark.parametrize(
    ("result", "kept", "is_logged"),
    [
        (float("nan"), "NaN", False),
        ("a\x00b", "a\\x00b", False),
        (object(), None, True),
        ("x" * 300_000, None, True),
        ({"fine": [1]}, {"fine": [1]}, False),
    ],
)
def test_a_result_is_kept_where_it_can_be(
    shop: Shop, caplog: pytest.LogCaptureFixture, result: object, kept: object, is_logged: bool
) -> None:
    """N-012, N-013: made safe, or null and logged; completed all the same."""
    caplog.set_level(logging.INFO, "rowsweep")

    @job(tenant="none")
    def answer(ctx: Ctx) -> object:
        return result

    job_id = shop.enqueue(answer)
    shop.running()
    assert shop.until_state(job_id, "done").result == kept
    assert bool(logged(caplog.records, "jobs.result.unstorable")) is is_logged


def test_a_job_that_nobody_here_declares_stays_ready(shop: Shop) -> None:
    """N-030."""

    @job("elsewhere", tenant="none")
    def other(ctx: Ctx) -> None: ...

    foreign = shop.enqueue(other)
    reset_jobs()

    @job("here", tenant="none")
    def mine(ctx: Ctx) -> None: ...

    shop.running()
    shop.until_state(shop.enqueue(mine), "done")
    assert (shop.job(foreign).state, shop.job(foreign).claims) == ("ready", 0)


def test_a_run_finishes_with_the_body_it_started_with(shop: Shop) -> None:
    """N-006: declaring again replaces the body of later runs only."""
    started, go = threading.Event(), threading.Event()

    def declare(answer: str) -> Any:
        @job("again", tenant="none")
        def again(ctx: Ctx) -> str:
            started.set()
            assert go.wait(60)
            return answer

        return again

    first = shop.enqueue(declare("old"))
    shop.running()
    assert started.wait(60)
    second = shop.enqueue(declare("new"))
    go.set()
    assert shop.until_state(first, "done").result == "old"
    assert shop.until_state(second, "done").result == "new"


def test_a_delayed_job_starts_within_a_second_of_its_time(shop: Shop) -> None:
    """N-032, N-043: a known next instant shortens the wait."""

    @job(tenant="none")
    def late(ctx: Ctx) -> None: ...

    shop.running(poll="20s", poll_floor="20s")
    until(lambda: bool(shop.workers[0].stats.id))
    job_id = shop.enqueue(late, delay="300ms")
    shop.workers[0].kick()
    done = shop.until_state(job_id, "done")
    assert done.started_at is not None
    assert (done.started_at - done.run_at).total_seconds() < 1.0


def test_a_job_enqueued_by_a_run_is_taken_at_once(shop: Shop) -> None:
    """S-383: a run that ends here kicks the loop."""

    @job(tenant="none")
    def second(ctx: Ctx) -> None: ...

    @job(tenant="none")
    def first(ctx: Ctx) -> str:
        return str(second.enqueue().id)

    worker = shop.running(poll="60s", poll_floor="60s")
    job_id = shop.enqueue(first)
    worker.kick()
    follower = UUID(shop.until_state(job_id, "done").result)
    assert shop.until_state(follower, "done").enqueued_by == f"job:first:{job_id}"
