"""Steps that wait inside runs, over both drivers."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pytest

from rowsweep.errors import InvalidOption, StepKindChanged
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.jobs.retry import Retry
from tests.steps.test_runner import claimed, runner_for
from tests.worker.shop import Shop, until

NOW = Retry(attempts=2, base="0s", jitter=False)


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
