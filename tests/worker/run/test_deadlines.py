"""Deadlines of runs and steps, over both drivers with real threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from rowsweep.errors import Interrupted, InvalidOption
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from tests.worker.shop import Shop, logged, until
from tests.worker.world import memory, postgres, queue_connection, queue_dsn, shop

__all__ = ["memory", "postgres", "queue_connection", "queue_dsn", "shop"]

ONCE = Retry(attempts=1)
NOW = Retry(attempts=2, base="0s", jitter=False)


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What a body that ignores everything waits for; set when the test is over."""
    event = threading.Event()
    yield event
    event.set()


def test_a_deadline_aborts_the_signal_and_then_fails_the_attempt(shop: Shop) -> None:
    """S-140, S-142, S-146: a body that reads its signal is stopped, and tried again by its policy."""
    seen: list[Any] = []

    @job(tenant="none", timeout="200ms", retry=NOW)
    def slow(ctx: Ctx) -> None:
        ctx.signal.wait(30)
        seen.append((ctx.signal.aborted, getattr(ctx.signal.reason, "code", None), shop.job(ctx.job_id).state))
        ctx.signal.raise_if_aborted()

    job_id = shop.enqueue(slow)
    worker = shop.running()
    row = shop.until_state(job_id, "dead")
    assert seen == [(True, "X_JOB_TIMEOUT", "running")] * 2
    assert (row.last_error_code, row.attempt, row.stop_reason) == ("X_JOB_TIMEOUT", 2, "attempts")
    until(lambda: worker.stats.outcomes == {"retried": 1, "dead-lettered": 1})
    assert worker.stats.abandoned == 0


def test_a_body_that_returns_after_its_deadline_has_failed(shop: Shop) -> None:
    """S-142: what it stored before stays, what it would store after does not."""

    @job(tenant="none", timeout="100ms", retry=ONCE)
    def slow(ctx: Ctx) -> str:
        ctx.step.run("before", lambda: 1)
        ctx.signal.wait(30)
        try:
            ctx.step.run("after", lambda: 1)
        except Interrupted:
            return "late"
        return "never"

    job_id = shop.enqueue(slow)
    shop.running()
    row = shop.until_state(job_id, "dead")
    assert (row.last_error_code, row.result) == ("X_JOB_TIMEOUT", None)
    assert set(shop.steps(job_id)) == {"before"}


def test_what_the_body_raised_when_it_was_stopped_is_noted(memory: Shop) -> None:
    """S-131: the row says that it was late, and what its body made of that."""

    @job(tenant="none", timeout="50ms", retry=ONCE)
    def slow(ctx: Ctx) -> None:
        ctx.signal.wait(30)
        raise ConnectionError("cut off")

    job_id = memory.enqueue(slow)
    memory.running()
    row = memory.until_state(job_id, "dead")
    assert row.last_error is not None
    assert row.last_error.startswith("JobTimedOut: X_JOB_TIMEOUT")
    assert "ConnectionError: cut off" in row.last_error


def test_a_body_that_keeps_its_deadline_is_left_alone(shop: Shop) -> None:
    """S-145: nothing fires later, also for the next run on that thread."""

    @job(tenant="none", timeout="300ms", step_timeout="300ms", input=int, retry=ONCE)
    def quick(ctx: Ctx, number: int) -> int:
        for at in range(3):
            ctx.step.run(f"{at}", lambda: time.sleep(0.02))
        return number

    ids = [shop.enqueue(quick, number) for number in range(12)]
    worker = shop.running(concurrency=2)
    assert [shop.until_state(job_id, "done").result for job_id in ids] == list(range(12))
    assert worker._crew is not None
    crew = worker._crew
    until(lambda: not crew._deadlines._armed, "nothing kept of runs that are over")


def test_a_body_that_ignores_everything_is_left_behind(
    shop: Shop, release: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """S-143, S-147: named in the log, its slot given to a fresh thread, its claim ended, and no way to write."""
    late: list[Any] = []
    ended = threading.Event()
    others = set(threading.enumerate())

    @job(tenant="none", timeout="200ms", retry=ONCE)
    def stubborn(ctx: Ctx) -> None:
        release.wait(30)
        for write in (
            lambda: ctx.step.run("late", lambda: 1),
            lambda: ctx.step.sleep("nap", "1h"),
            lambda: ctx.transaction().__enter__(),
        ):
            try:
                write()
            except BaseException as error:  # noqa: BLE001 - what an application should not do
                late.append(type(error).__name__)
        ended.set()

    @job(tenant="none", retry=ONCE)
    def next_one(ctx: Ctx) -> str:
        return threading.current_thread().name

    job_id = shop.enqueue(stubborn)
    worker = shop.running(concurrency=1)
    shop.until_state(job_id, "running")
    follower = shop.enqueue(next_one)
    row = shop.until_state(job_id, "dead")
    assert row.claimed_by is None
    assert row.last_error_code == "X_JOB_TIMEOUT"
    assert row.last_error is not None
    assert "in stubborn" in row.last_error
    assert shop.until_state(follower, "done").result == "rowsweep-run-default"
    until(lambda: worker.stats.outcomes == {"dead-lettered": 1, "completed": 1})
    assert (worker.stats.abandoned, worker.stats.in_flight) == (1, 0)
    (line,) = logged(caplog.records, "jobs.timeout.abandoned")
    assert (line["job"], line["job_id"], line["attempt"], line["timeout_seconds"]) == ("stubborn", str(job_id), 1, 0.2)
    release.set()
    assert ended.wait(60)
    assert late == ["Interrupted"] * 3
    assert shop.steps(job_id) == {}
    shop.enqueue(next_one)
    until(lambda: worker.stats.processed == 2)
    until(lambda: sum(one.name == "rowsweep-run-default" for one in set(threading.enumerate()) - others) <= 1)


def test_a_body_that_is_left_behind_keeps_no_slot(shop: Shop, release: threading.Event) -> None:
    """S-143, S-340: the cap is for the next one as soon as the claim has ended."""

    @job(tenant="none", input=int, timeout="100ms", concurrency=1, retry=ONCE)
    def alone(ctx: Ctx, number: int) -> int:
        if number == 0:
            release.wait(30)
        return number

    stuck = shop.enqueue(alone, 0)
    worker = shop.running(concurrency=1)
    shop.until_state(stuck, "dead")
    assert shop.until_state(shop.enqueue(alone, 1), "done").result == 1
    assert worker.stats.abandoned == 1


def test_a_step_has_a_deadline_too(shop: Shop) -> None:
    """S-140, S-154: the signal that it is handed is aborted first, then the attempt fails."""
    seen: list[Any] = []

    @job(tenant="none", step_timeout="150ms", retry=ONCE)
    def slow(ctx: Ctx) -> None:
        ctx.step.run("quick", lambda: 1)
        ctx.step.run("slow", lambda signal: seen.append((signal.wait(30), signal.reason.code)))

    job_id = shop.enqueue(slow)
    shop.running()
    row = shop.until_state(job_id, "dead")
    assert seen == [(True, "X_TIMEOUT")]
    assert row.last_error_code == "X_TIMEOUT"
    assert row.last_error is not None
    assert "'slow'" in row.last_error
    assert set(shop.steps(job_id)) == {"quick"}


def test_a_body_that_swallows_its_step_s_deadline_is_left_behind(shop: Shop, release: threading.Event) -> None:
    """S-140, S-143: also where it goes on outside the step."""

    @job(tenant="none", step_timeout="100ms", retry=ONCE)
    def stubborn(ctx: Ctx) -> None:
        try:
            ctx.step.run("slow", lambda signal: (signal.wait(30), signal.raise_if_aborted()))
        except BaseException:  # noqa: BLE001 - what an application should not do
            release.wait(30)

    job_id = shop.enqueue(stubborn)
    worker = shop.running()
    assert shop.until_state(job_id, "dead").last_error_code == "X_TIMEOUT"
    until(lambda: worker.stats.abandoned == 1)


def test_a_coroutine_is_cancelled_on_its_loop(shop: Shop) -> None:
    """N-008: the signal, then the task, then the attempt; its cleanup runs."""
    seen: list[Any] = []

    @job(tenant="none", timeout="100ms", retry=ONCE)
    async def slow(ctx: Ctx) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            seen.append(ctx.signal.aborted)
            raise

    job_id = shop.enqueue(slow)
    worker = shop.running()
    assert shop.until_state(job_id, "dead").last_error_code == "X_JOB_TIMEOUT"
    assert seen == [True]
    assert worker.stats.abandoned == 0


def test_a_coroutine_s_step_has_a_deadline(shop: Shop) -> None:
    """N-008, S-140."""

    async def fetch() -> None:
        await asyncio.sleep(30)

    @job(tenant="none", step_timeout="100ms", retry=ONCE)
    async def slow(ctx: Ctx) -> None:
        await ctx.step.run("fetch", fetch)

    job_id = shop.enqueue(slow)
    shop.running()
    assert shop.until_state(job_id, "dead").last_error_code == "X_TIMEOUT"


def test_a_coroutine_that_ignores_its_cancel_is_left_behind(shop: Shop, release: threading.Event) -> None:
    """N-008, S-143."""

    @job(tenant="none", timeout="100ms", retry=ONCE)
    async def stubborn(ctx: Ctx) -> None:
        while not release.is_set():
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                continue

    job_id = shop.enqueue(stubborn)
    worker = shop.running()
    assert shop.until_state(job_id, "dead").last_error_code == "X_JOB_TIMEOUT"
    until(lambda: worker.stats.abandoned == 1)


def test_a_statement_in_flight_is_cancelled_at_the_deadline(
    postgres: Shop, queue_connection: psycopg.Connection[Any]
) -> None:
    """N-019: through libpq; nothing commits, and nobody is left behind."""
    raised: list[BaseException] = []

    @job(tenant="none", timeout="200ms", retry=ONCE)
    def slow(ctx: Ctx) -> None:
        try:
            with ctx.transaction() as tx:
                tx.execute("insert into marks (mark) values ('half')")
                tx.execute("select pg_sleep(30)")
        except BaseException as error:
            raised.append(error)
            raise

    job_id = postgres.enqueue(slow)
    worker = postgres.running()
    begun = time.monotonic()
    assert postgres.until_state(job_id, "dead").last_error_code == "X_JOB_TIMEOUT"
    assert time.monotonic() - begun < 5
    assert isinstance(raised[0], psycopg.errors.QueryCanceled)
    assert queue_connection.execute("select count(*) from marks").fetchone() == (0,)
    assert worker.stats.abandoned == 0


@pytest.mark.slow
def test_a_run_that_lost_its_lease_and_its_deadline_is_settled_by_nobody(
    shop: Shop, release: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """S-143, N-120: the thread is let go; the row is the other worker's."""

    @job(tenant="none", timeout="1500ms", retry=ONCE)
    def stubborn(ctx: Ctx) -> None:
        release.wait(30)

    job_id = shop.enqueue(stubborn)
    worker = shop.running(concurrency=1, visibility="3s", renew_every="100ms")
    shop.until_state(job_id, "running")
    shop.steal(job_id)
    until(lambda: worker.stats.abandoned == 1)
    until(lambda: worker.stats.outcomes == {"interrupted": 1})
    assert shop.job(job_id).claimed_by == "thief"
    assert logged(caplog.records, "jobs.settle.unowned") == []


@pytest.mark.parametrize("option", ["timeout", "step_timeout", "event_poll"])
@pytest.mark.parametrize("length", [5, "5", "0s", "-1s", True])
def test_a_length_that_is_none_is_refused_at_the_declaration(option: str, length: Any) -> None:
    """S-026, S-014, D-37."""
    given: dict[str, Any] = {option: length}
    with pytest.raises(InvalidOption) as caught:
        job("late", print, tenant="none", **given)
    assert caught.value.meta["option"] == option
