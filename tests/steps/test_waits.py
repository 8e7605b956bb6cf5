"""Steps that wait inside runs, over both drivers."""

from __future__ import annotations

import dataclasses
import datetime as dt
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rowsweep.errors import InvalidOption, StepKindChanged
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.queue.bus import publish_event, use_event_bus
from rowsweep.queue.contract import Stores
from rowsweep.queue.memory.driver import MemoryDriver
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.stores.events import Event
from rowsweep.steps.context import RunCtx
from rowsweep.steps.options import StepOptions
from tests.steps.test_runner import claimed, runner_for
from tests.worker.shop import Shop, until

NOW = Retry(attempts=2, base="0s", jitter=False)


@pytest.fixture(autouse=True)
def bus(request: pytest.FixtureRequest) -> Iterator[None]:
    """Publish over the driver under test."""
    kind = next(kind for kind in ("shop", "memory", "postgres") if kind in request.fixturenames)
    driver = request.getfixturevalue(kind).driver
    assert isinstance(driver, (MemoryDriver, PostgresDriver))
    use_event_bus(driver.event_bus())
    yield
    use_event_bus(None)


def test_a_sleep_parks_the_run_and_goes_on_after_it(shop: Shop) -> None:
    """S-148, S-155, S-166: replayed from the start, each step run once, nothing counted."""
    ran: list[str] = []

    @job(tenant="none", retry=Retry(attempts=1))
    def nap(ctx: Ctx) -> Any:
        ctx.step.run("before", lambda: ran.append("before"))
        ctx.step.sleep("nap", "300ms")
        ctx.step.run("between", lambda: ran.append("between"))
        ctx.step.sleep("again", dt.timedelta(milliseconds=50))
        return ctx.step.run("after", lambda: len(ran))

    job_id = shop.enqueue(nap)
    begun = time.monotonic()
    worker = shop.running()
    row = shop.until_state(job_id, "done")
    assert time.monotonic() - begun >= 0.35
    assert (row.result, row.attempt, row.claims) == (2, 1, 3)
    assert ran == ["before", "between"]
    until(lambda: worker.stats.outcomes == {"suspended": 2, "completed": 1})


def test_a_parked_run_is_due_when_its_sleep_ends_and_is_in_no_ones_hands(shop: Shop) -> None:
    """D-28, S-166, N-032: stored before it parks; `run_at` is the stored instant to the microsecond."""

    @job(tenant="none")
    def nap(ctx: Ctx) -> None:
        ctx.step.sleep("nap", "1h")

    job_id = shop.enqueue(nap)
    worker = shop.worker()
    (execution,) = worker.tick()
    row, step = shop.job(job_id), shop.steps(job_id)["nap"]
    assert (row.state, row.claimed_by, row.attempt) == ("suspended", None, 0)
    assert (step.kind, step.status) == ("sleep", "waiting")
    assert row.run_at == step.wake_at == execution.resume_at
    assert execution.steps == ("nap",)
    assert (worker.stats.in_flight, worker.tick()) == (0, [])


def test_a_run_that_wakes_too_early_parks_again(shop: Shop) -> None:
    """D-28: the database's clock decides, whoever made the row due."""

    @job(tenant="none")
    def nap(ctx: Ctx) -> None:
        ctx.step.sleep("nap", "1h")

    job_id = shop.enqueue(nap)
    worker = shop.worker()
    worker.tick()
    due_at = shop.job(job_id).run_at
    shop.make_due(job_id)
    (execution,) = worker.tick()
    assert (execution.outcome, execution.steps, execution.replayed) == ("suspended", (), ("nap",))
    assert shop.job(job_id).run_at == due_at


def test_a_sleep_that_is_over_is_replayed_without_a_statement(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-148, S-152."""
    claim = claimed(shop)
    runner_for(shop, claim).sleep("nap", "0s")
    runner = runner_for(shop, claim)
    monkeypatch.setattr(type(shop.driver.stores().steps), "sleep", None)
    runner.sleep("nap", "1h")
    assert runner.trace.replayed == ("nap",)
    assert runner.trace.steps == ()


@pytest.mark.parametrize("length", [5, "5", "-1s", -1.0, None, "40000d"])
def test_a_length_that_is_none_is_refused(memory: Shop, length: Any) -> None:
    """S-014, N-003: nothing is stored."""
    runner = runner_for(memory, claimed(memory))
    with pytest.raises(InvalidOption) as caught:
        runner.sleep("nap", length)
    assert caught.value.meta["option"] == "duration"
    assert runner.read("nap") is None


def test_a_step_does_not_become_a_sleep(shop: Shop) -> None:
    """D-28."""
    claim = claimed(shop)
    runner_for(shop, claim).run("nap", lambda: 1)
    with pytest.raises(StepKindChanged):
        runner_for(shop, claim).sleep("nap", "1s")


def test_a_body_that_swallows_its_sleep_still_parks(shop: Shop) -> None:
    """N-020: `except Exception` cannot eat it, and what eats it changes nothing."""
    seen: list[str] = []

    @job(tenant="none")
    def nap(ctx: Ctx) -> str:
        try:
            ctx.step.sleep("nap", "1h")
        except Exception:  # noqa: BLE001 - what an application may do
            seen.append("eaten")
        except BaseException:  # noqa: BLE001 - and what it should not
            seen.append("swallowed")
        return "as if nothing had happened"

    job_id = shop.enqueue(nap)
    (execution,) = shop.worker().tick()
    assert (execution.outcome, seen) == ("suspended", ["swallowed"])
    assert shop.job(job_id).run_at == shop.steps(job_id)["nap"].wake_at


def test_a_coroutine_sleeps_too(shop: Shop) -> None:
    """N-008: its run is parked; no loop and no thread waits."""

    @job(tenant="none")
    async def nap(ctx: Ctx) -> Any:
        first = await ctx.step.run("first", fetch)
        ctx.step.sleep("nap", "50ms")
        return first

    async def fetch() -> int:
        return 7

    job_id = shop.enqueue(nap)
    shop.running()
    row = shop.until_state(job_id, "done")
    assert (row.result, row.claims) == (7, 2)


@pytest.mark.parametrize("is_async", [True, False])
def test_a_step_that_was_never_awaited_fails_its_run(shop: Shop, is_async: bool) -> None:
    """N-008: nothing of it has run, and a run that is done would never do it."""
    ran = []

    async def send() -> None:
        ran.append(1)

    def forgets(ctx: Ctx) -> str:
        ctx.step.run("send", send)
        return "sent"

    async def forgets_too(ctx: Ctx) -> str:
        return forgets(ctx)

    job_id = shop.enqueue(job("forgets", forgets_too if is_async else forgets, tenant="none"))
    shop.running()
    row = shop.until_state(job_id, "dead")
    assert (row.last_error_code, row.attempt, row.stop_reason, ran) == ("X_INVARIANT", 1, "terminal", [])
    assert "The step 'send'" in str(row.last_error)


def test_a_wait_inside_a_transaction_is_refused(shop: Shop) -> None:
    """N-117: parking would roll it back."""

    @job(tenant="none", retry=Retry(attempts=1))
    def nap(ctx: Ctx) -> None:
        with ctx.transaction():
            ctx.step.sleep("nap", "1s")

    job_id = shop.enqueue(nap)
    shop.worker().tick()
    assert shop.job(job_id).last_error_code == "X_OPTION_INVALID"
    assert shop.steps(job_id) == {}


def test_a_wait_parks_until_its_event_is_published(shop: Shop) -> None:
    """S-154, S-167, N-047, N-048: the record is the answer, stored and replayed."""
    seen: list[Any] = []

    @job(tenant="none", retry=NOW)
    def order(ctx: Ctx) -> Any:
        event = ctx.step.wait_for_event("payment", "paid", "order-7", timeout="1h")
        assert isinstance(event, Event)
        seen.append(event)
        if ctx.attempt == 1:
            raise ConnectionError("crash after the answer")
        return event.payload

    job_id = shop.enqueue(order)
    worker = shop.running()
    shop.until_state(job_id, "suspended")
    until(lambda: worker.stats.in_flight == 0)
    publish_event("paid", {"total": 1}, key="order-8")
    published = publish_event("paid", {"total": 2}, key="order-7")
    publish_event("paid", {"total": 3}, key="order-7")
    assert shop.until_state(job_id, "done").result == {"total": 2}
    assert seen == [published, published]
    step = shop.steps(job_id)["payment"]
    assert (step.kind, step.status, Event.of(step.output)) == ("event", "done", published)


def test_a_wait_that_times_out_answers_none_again_and_again(shop: Shop) -> None:
    """S-156, S-171: an event that comes later changes no replay."""
    seen: list[Any] = []

    @job(tenant="none", retry=NOW)
    def order(ctx: Ctx) -> None:
        seen.append(ctx.step.wait_for_event("payment", "paid", timeout="100ms"))
        if ctx.attempt == 1:
            publish_event("paid")
            raise ConnectionError("crash after the timeout")

    job_id = shop.enqueue(order)
    shop.running()
    shop.until_state(job_id, "done")
    assert seen == [None, None]
    assert shop.steps(job_id)["payment"].status == "timed-out"


def test_an_event_published_before_a_run_is_back_at_its_wait_is_found(shop: Shop) -> None:
    """S-167: between the question and the replay."""

    @job(tenant="none", retry=NOW)
    def order(ctx: Ctx) -> Any:
        event = ctx.step.wait_for_event("payment", "paid", timeout="1h")
        return None if event is None else event.payload

    job_id = shop.enqueue(order)
    worker = shop.worker()
    worker.tick()
    publish_event("paid", 1)
    shop.make_due(job_id)
    assert [execution.outcome for execution in worker.tick()] == ["completed"]
    assert shop.job(job_id).result == 1


def test_since_finds_an_event_that_came_before_the_wait(shop: Shop) -> None:
    """N-047: the run does not even park."""
    asked_at = publish_event("paid", "early").published_at

    @job(tenant="none")
    def order(ctx: Ctx) -> Any:
        event = ctx.step.wait_for_event("payment", "paid", since=asked_at)
        return None if event is None else event.payload

    job_id = shop.enqueue(order)
    (execution,) = shop.worker().tick()
    assert (execution.outcome, shop.job(job_id).result) == ("completed", "early")


def test_a_wait_without_a_timeout_parks_for_good(shop: Shop) -> None:
    """D-28: it is due again in a year, or with its event."""

    @job(tenant="none")
    def order(ctx: Ctx) -> bool:
        return ctx.step.wait_for_event("payment", "paid", timeout=None) is not None

    job_id = shop.enqueue(order)
    worker = shop.worker()
    worker.tick()
    row = shop.job(job_id)
    assert (row.run_at - row.updated_at).days == 365
    publish_event("paid")
    worker.tick()
    assert shop.job(job_id).result is True


def test_a_wait_that_is_over_is_replayed_without_a_statement(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-148, S-152: an event and a timeout alike."""
    claim = claimed(shop)
    since = publish_event("paid", 5).published_at
    first = runner_for(shop, claim)
    event = first.wait_for_event("payment", "paid", since=since)
    assert first.wait_for_event("refund", "refunded", timeout="0s") is None
    assert first.trace.steps == ("payment", "refund")
    monkeypatch.setattr(type(shop.driver.stores().steps), "wait", None)
    again = runner_for(shop, claim)
    assert again.wait_for_event("payment", "paid") == event
    assert again.wait_for_event("refund", "refunded") is None
    assert again.trace.replayed == ("payment", "refund")


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"event": ""}, "event"),
        ({"event": None}, "event"),
        ({"key": ""}, "key"),
        ({"key": 7}, "key"),
        ({"timeout": 5}, "timeout"),
        ({"timeout": "-1s"}, "timeout"),
        ({"since": "yesterday"}, "since"),
        ({"since": dt.datetime(2025, 1, 1, tzinfo=dt.UTC).replace(tzinfo=None)}, "since"),
    ],
)
def test_a_question_that_is_none_is_refused(memory: Shop, given: Any, option: str) -> None:
    """D-37: nothing is stored."""
    runner = runner_for(memory, claimed(memory))
    with pytest.raises(InvalidOption) as caught:
        runner.wait_for_event("payment", **({"event": "paid"} | given))
    assert caught.value.meta["option"] == option
    assert runner.read("payment") is None


def test_an_idle_worker_polls_for_what_no_publication_woke(shop: Shop) -> None:
    """N-048, S-166, D-15: riding on its look, at the interval that the job declares."""

    @job(tenant="none", event_poll="200ms")
    def order(ctx: Ctx) -> Any:
        event = ctx.step.wait_for_event("payment", "paid", timeout="1h")
        return None if event is None else event.payload

    job_id = shop.enqueue(order)
    shop.worker().tick()
    publish_event("paid", "missed")
    shop.hands.edit(job_id, run_at=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1))
    shop.running(poll="1h", poll_floor="1h", announce_every="1h")
    assert shop.until_state(job_id, "done").result == "missed"


def test_a_run_looks_for_itself_where_no_worker_announces(memory: Shop) -> None:
    """S-027, S-057: `event_poll` is the runner's then, and the timeout still ends the wait."""

    class Workerless(MemoryDriver):
        def control(self) -> Stores:
            return dataclasses.replace(super().control(), workers=None)

    driver = Workerless()
    shop = Shop("memory", driver, memory.hands)
    runner = runner_for(shop, claimed(shop))
    runner.options = StepOptions(event_poll=dt.timedelta(seconds=7))
    for timeout, parked in (("1h", 7.0), ("3s", 3.0), (None, 7.0)):
        runner.suspension = None
        with pytest.raises(BaseException) as caught:  # noqa: PT011 - a Suspend is no Exception
            runner.wait_for_event(f"payment {timeout}", "paid", timeout=timeout)
        assert getattr(caught.value, "delay_seconds", None) == parked


def test_every_option_of_the_steps_can_be_declared(memory: Shop) -> None:
    """S-027: handed over in one place, under the declaration's own names."""
    assert [entry.name for entry in dataclasses.fields(StepOptions)] == ["step_timeout", "event_poll"]
    seen: list[StepOptions] = []

    @job(tenant="none", step_timeout="7s", event_poll="11s")
    def order(ctx: Ctx) -> None:
        assert isinstance(ctx, RunCtx)
        seen.append(ctx.runner.options)

    memory.enqueue(order)
    memory.worker().tick()
    assert seen == [StepOptions(step_timeout=dt.timedelta(seconds=7), event_poll=dt.timedelta(seconds=11))]
