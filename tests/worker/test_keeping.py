"""What keeps a claim while its run lasts, and what a worker does around it."""

from __future__ import annotations

import logging
import random
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from rowsweep.clock import real_monotonic
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.lifecycle import Lifecycle
from rowsweep.queue.contract import Driver, JobStore, Stores
from rowsweep.queue.records import Claim, ClaimPass
from rowsweep.queue.stores.holds import holder_of
from rowsweep.signals import RunSignal
from rowsweep.testing.clock import FakeClock
from tests.worker.shop import Shop, logged, until


class Between:
    """A driver whose job store hands one call to the test, which makes it when it likes."""

    def __init__(self, driver: Driver, name: str, handler: Callable[[Callable[[], Any]], Any]) -> None:
        self._driver = driver
        self.name = name
        self.handler = handler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def control(self) -> Stores:
        stores = self._driver.control()
        return replace(stores, jobs=cast("JobStore", _Handled(stores.jobs, self)))


class _Handled:
    def __init__(self, jobs: JobStore, owner: Between) -> None:
        self._jobs = jobs
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._jobs, name)
        if name != self._owner.name:
            return real
        return lambda *arguments, **given: self._owner.handler(lambda: real(*arguments, **given))


def in_background(call: Callable[[], Any]) -> threading.Thread:
    """Start a call on a thread."""
    thread = threading.Thread(target=call, name="rowsweep-test", daemon=True)
    thread.start()
    return thread


def test_a_renewal_in_flight_blocks_the_next(shop: Shop) -> None:
    """S-320: on a slow connection renewals do not stack up."""
    going, most, made = [0], [0], [0]
    go_on = threading.Event()

    def slow(renew: Callable[[], Any]) -> Any:
        going[0] += 1
        most[0] = max(most[0], going[0])
        go_on.wait(0.15)  # longer than the interval between two renewals
        made[0] += 1
        try:
            return renew()
        finally:
            going[0] -= 1

    @job(tenant="none")
    def work(ctx: Ctx) -> None:
        assert go_on.wait(60)

    job_id = shop.enqueue(work)
    shop.running(driver=Between(shop.driver, "renew", slow), visibility="6s", renew_every="50ms")
    until(lambda: made[0] >= 4)
    go_on.set()
    shop.until_state(job_id, "done")
    assert most == [1]


@pytest.mark.parametrize("limit", [None, 1], ids=["free", "capped"])
def test_a_claim_that_is_answered_late_is_a_loss_and_nothing_of_it_runs(
    shop: Shop, caplog: pytest.LogCaptureFixture, limit: int | None
) -> None:
    """S-322, S-323, S-325: reported once; it sends no settlement, and asks for no slot that the next holder has."""
    caplog.set_level(logging.INFO, "rowsweep")
    clock, ran, thieves = FakeClock(), threading.Event(), list[Claim]()
    slots = shop.driver.stores().slots
    assert slots is not None

    @job("work", tenant="none", concurrency=limit)
    def work(ctx: Ctx) -> None:
        ran.set()

    def late(claim: Callable[[], ClaimPass]) -> ClaimPass:
        passed = claim()
        if passed.jobs and not thieves:
            thieves.append(shop.steal(job_id))
            assert slots.acquire("job:work", limit=1, ttl_seconds=60, claim=thieves[0]) is not None
            clock.advance("30s")
        return passed

    job_id = shop.enqueue(work)
    worker = shop.running(driver=Between(shop.driver, "claim", late), clock=clock)
    until(lambda: bool(logged(caplog.records, "jobs.lease.lost")))
    worker.stop()
    (lost,) = logged(caplog.records, "jobs.lease.lost")
    assert (lost["job_id"], lost["claim"], lost["held_seconds"]) == (str(job_id), thieves[0].claim - 1, 30)
    assert "could not begin within 30 s" in lost["cause"]
    assert not ran.is_set()
    assert (worker.stats.outcomes, worker.stats.in_flight) == ({}, 0)
    assert not logged(caplog.records, "jobs.settle.unowned")
    assert not logged(caplog.records, "jobs.worker.shed")
    assert [slot.holder for slot in slots.holders("job:work")] == [holder_of(thieves[0])]


def test_a_renewal_that_succeeds_late_is_a_loss_all_the_same(memory: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-322: the queue may have delivered the job again meanwhile."""
    caplog.set_level(logging.INFO, "rowsweep")
    clock = FakeClock()

    def late(renew: Callable[[], Any]) -> Any:
        answer = renew()
        clock.advance("31s")
        return answer

    @job(tenant="none")
    def work(ctx: Ctx) -> None:
        assert ctx.signal.wait(60)

    memory.enqueue(work)
    worker = memory.running(driver=Between(memory.driver, "renew", late), clock=clock, renew_every="1ms")

    def is_lost() -> bool:
        clock.advance("20ms")
        return bool(logged(caplog.records, "jobs.lease.lost"))

    until(is_lost)
    until(lambda: worker.stats.outcomes.get("interrupted") == 1)


def test_what_escapes_a_renewal_is_logged_and_renewing_goes_on(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-327: a driver that answers nonsense ends no loop."""
    caplog.set_level(logging.INFO, "rowsweep")
    is_broken, go = threading.Event(), threading.Event()
    is_broken.set()
    landed: list[int] = []

    def sometimes(renew: Callable[[], Any]) -> Any:
        if is_broken.is_set():
            return []
        landed.append(1)
        return renew()

    @job(tenant="none")
    def work(ctx: Ctx) -> None:
        assert go.wait(60)

    job_id = shop.enqueue(work)
    shop.running(driver=Between(shop.driver, "renew", sometimes), visibility="6s", renew_every="100ms")
    until(lambda: bool(logged(caplog.records, "jobs.renewal.raised")))
    is_broken.clear()
    until(lambda: len(landed) > 1)
    go.set()
    assert shop.until_state(job_id, "done").claims == 1
    assert str(job_id) in logged(caplog.records, "jobs.renewal.raised")[0]["job_ids"]


def test_a_body_s_callback_that_exits_ends_no_thread_of_the_worker(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """N-018, N-020, S-119: called by the keeper, at the renewal that is refused and not when the window is over."""

    @job("callback", tenant="none")
    def callback(ctx: Ctx) -> None:
        ctx.signal.on_abort(lambda: sys.exit(3))
        if ctx.attempt == 1:
            ctx.signal.wait(60)

    job_id = shop.enqueue(callback)
    worker = shop.running(visibility="120s", renew_every="50ms")
    shop.until_state(job_id, "running")
    steering = shop.driver.stores().steering
    assert steering is not None
    steering.cancel(job_id)
    until(lambda: bool(logged(caplog.records, "jobs.lease.lost")))
    until(lambda: worker.stats.in_flight == 0)
    names = {thread.name for thread in threading.enumerate()}
    assert {"rowsweep-keeper", "rowsweep-claims", "rowsweep-settler"} <= names


def test_every_renewal_is_armed_through_the_worker_s_timers(memory: Shop) -> None:
    """S-330, S-277: one seam for everything timed."""
    waited: set[str] = set()

    class Noting:
        def wait(self, condition: threading.Condition, seconds: float | None) -> None:
            waited.add(threading.current_thread().name)
            condition.wait(seconds)

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    job_id = memory.enqueue(work)
    memory.running(timers=Noting())
    memory.until_state(job_id, "done")
    until(lambda: {"rowsweep-keeper", "rowsweep-claims"} <= waited)


@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_however_an_attempt_ends_its_signal_is_aborted(shop: Shop, ends: str) -> None:
    """S-141: a thread of the body that outlives it is told."""
    signals: list[RunSignal] = []

    @job(tenant="none")
    def work(ctx: Ctx) -> None:
        signals.append(ctx.signal)
        assert not ctx.signal.aborted
        if ends == "raises":
            raise LookupError("on purpose")

    shop.enqueue(work)
    worker = shop.running()
    until(lambda: worker.stats.in_flight == 0 and bool(worker.stats.outcomes))
    assert [signal.aborted for signal in signals] == [True]


def test_where_the_context_yields_no_actor_the_run_is_nobody_s(shop: Shop) -> None:
    """S-034, S-032: an anonymous actor without a tenant."""
    seen: list[str | None] = []

    @job(tenant="none")
    def work(ctx: Ctx) -> None:
        seen.append(ctx.actor.tenant)

    job_id = shop.enqueue(work)
    shop.running(context=lambda: None)
    shop.until_state(job_id, "done")
    assert seen == [None]


def test_the_context_is_asked_before_anything_of_the_job_is_renewed(shop: Shop) -> None:
    """S-291: and once a run."""
    order: list[str] = []
    go = threading.Event()

    def context() -> None:
        order.append("context")

    def noting(renew: Callable[[], Any]) -> Any:
        order.append("renew")
        return renew()

    @job(tenant="none")
    def work(ctx: Ctx) -> None:
        assert go.wait(60)

    job_id = shop.enqueue(work)
    driver = Between(shop.driver, "renew", noting)
    shop.running(context=context, driver=driver, visibility="6s", renew_every="50ms")
    until(lambda: "renew" in order)
    go.set()
    shop.until_state(job_id, "done")
    assert order[0] == "context"
    assert order.count("context") == 1


def test_a_drain_waits_for_a_pass_that_is_still_claiming(shop: Shop) -> None:
    """S-280: what it brings is handed back uncounted; its body never runs."""
    claimed, go = threading.Event(), threading.Event()
    ran: list[int] = []

    def held(claim: Callable[[], Any]) -> Any:
        answer = claim()
        if not claimed.is_set():
            claimed.set()
            assert go.wait(60)
        return answer

    @job(tenant="none")
    def work(ctx: Ctx) -> None:
        ran.append(1)

    job_id = shop.enqueue(work)
    worker = shop.running(driver=Between(shop.driver, "claim", held))
    assert claimed.wait(60)
    stopping = in_background(worker.stop)
    until(lambda: worker.state == "draining")
    assert stopping.is_alive()
    go.set()
    stopping.join(15)
    assert worker.state == "stopped"
    row = shop.job(job_id)
    assert (row.state, row.attempt, ran) == ("ready", 0, [])


def test_a_shutdown_stops_every_worker_from_taking_work_at_once(shop: Shop) -> None:
    """S-295: no accept hook waits for another worker's runs."""
    phases, go = Lifecycle("20s"), threading.Event()
    started = threading.Barrier(3)

    @job("first", tenant="none", queue="first")
    def first(ctx: Ctx) -> None:
        started.wait(10)
        assert go.wait(60)

    @job("second", tenant="none", queue="second")
    def second(ctx: Ctx) -> None:
        started.wait(10)
        assert go.wait(60)

    shop.enqueue(first)
    shop.enqueue(second)
    workers = [shop.running(lifecycle=phases, queues=[queue]) for queue in ("first", "second")]
    started.wait(10)
    ending = in_background(lambda: phases.shutdown("deploy"))
    until(lambda: [worker.state for worker in workers] == ["draining", "draining"])
    assert phases.readiness()["in_flight"] == 2
    go.set()
    ending.join(15)
    assert [worker.state for worker in workers] == ["stopped", "stopped"]


def test_a_shutdown_hands_its_reason_on_and_leaves_a_stopped_worker_alone(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """S-296, S-297: one drain a worker, each with the reason it was given."""
    caplog.set_level(logging.INFO, "rowsweep")
    phases = Lifecycle("20s")
    by_hand, by_signal = shop.running(lifecycle=phases), shop.running(lifecycle=phases)
    by_hand.stop("by hand")
    assert by_hand.state == "stopped"
    phases.shutdown("SIGTERM")
    assert by_signal.state == "stopped"
    drained = logged(caplog.records, "jobs.worker.draining")
    assert [fields["reason"] for fields in drained] == ["by hand", "SIGTERM"]


@pytest.mark.slow
def test_a_body_that_holds_the_interpreter_keeps_its_lease(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """N-041: a window leaves room for two missed turns of the keeper."""
    caplog.set_level(logging.INFO, "rowsweep")
    held: list[float] = []

    @job(tenant="none")
    def work(ctx: Ctx) -> None:
        numbers = [random.random() for _ in range(400_000)]
        while sum(held) < 4.0:  # two turns of the keeper and more; a sort lets nobody else run
            began = real_monotonic()
            sorted(numbers * 4)
            held.append(real_monotonic() - began)

    job_id = shop.enqueue(work)
    worker = shop.running(visibility="9s", renew_every="1s")
    until(lambda: bool(held))
    worker.stop()
    assert shop.job(job_id).claims == 1
    assert max(held) > 0.3
    assert not logged(caplog.records, "jobs.lease.lost")
