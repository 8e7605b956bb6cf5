"""The claim loop: what it costs to find nothing, and how soon it finds something."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.queue.records import ClaimOptions, ClaimPass
from rowsweep.testing.clock import FakeClock
from tests.statements import note_statements
from tests.worker.shop import BrokenDriver, DeafDriver, Shop, logged, until


class FastForward:
    """Timers that pass their seconds on a fake clock for the claim loop; the other loops wait for real."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        self._clock = clock
        self._until = seconds
        self.over = threading.Event()

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        if threading.current_thread().name != "rowsweep-claims":
            condition.wait(seconds)
        elif self._clock.monotonic() >= self._until or seconds is None:
            self.over.set()
            condition.wait(seconds)
        else:
            self._clock.advance(f"{int(seconds * 1000) + 1}ms")


def test_an_idle_worker_sends_at_most_thirty_statements_a_minute(
    postgres: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-385, N-043, DESIGN's idle cost: over three queues, announcements included."""

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    clock = FakeClock()
    counted: list[float] = []

    def count(_query: str, _values: Any) -> None:
        if threading.current_thread().name.startswith("rowsweep-"):
            counted.append(clock.monotonic())

    note_statements(monkeypatch, count)
    timers = FastForward(clock, 660.0)
    driver = DeafDriver(postgres.driver)
    queues = ["default", "mail", "slow"]
    postgres.running(driver=driver, clock=clock, timers=timers, queues=queues, poll="2s", poll_floor="500ms")
    assert timers.over.wait(60)
    assert not driver.asked
    idle = [at for at in counted if 60 <= at < 660]
    assert 200 < len(idle) <= 300


def test_a_worker_with_nothing_declared_only_announces_itself(memory: Shop) -> None:
    """N-030, N-043."""
    clock = FakeClock()
    timers = FastForward(clock, 600.0)
    driver = BrokenDriver(memory.driver)
    memory.running(driver=driver, clock=clock, timers=timers)
    assert timers.over.wait(60)
    assert not driver.asked
    workers = memory.driver.stores().workers
    assert workers is not None
    assert len(workers.live()) == 1


def test_a_full_pass_is_followed_by_another_without_a_look(memory: Shop) -> None:
    """S-283, S-383, N-043: `again` while passes come back full, whatever the interval."""

    @job(tenant="none", input=int)
    def work(ctx: Ctx, number: int) -> None: ...

    work.enqueue_many(list(range(200)))
    worker = memory.running(concurrency=2, poll="60s", poll_floor="60s")
    until(lambda: worker.stats.processed == 200)


def test_a_slow_queue_does_not_hold_up_another(memory: Shop) -> None:
    """S-065, S-274: a pass is one queue's, and each has its own runs."""
    go = threading.Event()

    @job("slow", tenant="none", queue="slow", input=int)
    def slow(ctx: Ctx, number: int) -> None:
        assert go.wait(60)

    @job("quick", tenant="none", queue="quick", input=int)
    def quick(ctx: Ctx, number: int) -> None: ...

    slow.enqueue_many(list(range(50)))
    worker = memory.running(queues=["slow", "quick"], concurrency={"slow": 2, "quick": 2})
    until(lambda: worker.stats.in_flight == 2)
    for number in range(20):
        memory.until_state(memory.enqueue(quick, number), "done")
    assert worker.stats.in_flight == 2
    go.set()
    until(lambda: worker.stats.processed == 70)


def test_what_a_queue_brought_begins_before_the_next_one_is_asked(
    memory: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-065: a claim that hangs holds up its own queue alone."""
    ran, in_time = threading.Event(), []

    @job("first", tenant="none", queue="first")
    def first(ctx: Ctx) -> None:
        ran.set()

    jobs = memory.driver.control().jobs
    claim = jobs.claim

    def slow_claim(options: ClaimOptions) -> ClaimPass:
        if list(options.queues) == ["second"]:
            in_time.append(ran.wait(20))
        return claim(options)

    monkeypatch.setattr(jobs, "claim", slow_claim)
    memory.enqueue(first)
    memory.worker(queues=["first", "second"]).tick()
    assert in_time == [True]


def test_a_claim_names_one_queue_and_the_declared_jobs(memory: Shop) -> None:
    """S-065, N-030, D-16, S-096: limited to the runs that are free."""
    from rowsweep.jobs.attempts.retry import Retry

    @job("kept", tenant="none")
    def kept(ctx: Ctx) -> None: ...

    @job("dropped", tenant="none", retry=Retry(dead_letter=False))
    def dropped(ctx: Ctx) -> None: ...

    driver = BrokenDriver(memory.driver)
    memory.enqueue(kept)
    worker = memory.running(driver=driver, queues=["default", "mail"], concurrency=3)
    until(lambda: worker.stats.processed == 1)
    options = driver.calls("claim")[0][0]
    assert (list(options.queues), options.names, options.drop_exhausted) == (
        ["default"],
        ["dropped", "kept"],
        ["dropped"],
    )
    assert (options.limit, options.worker_id, options.lapsed) == (3, worker.id, True)


def test_lapsed_rows_are_looked_for_once_a_second_while_busy(memory: Shop) -> None:
    """N-031: not in each claim."""

    @job(tenant="none", input=int)
    def work(ctx: Ctx, number: int) -> None: ...

    work.enqueue_many(list(range(300)))
    driver = BrokenDriver(memory.driver)
    worker = memory.running(driver=driver, concurrency=1)
    until(lambda: worker.stats.processed == 300)
    asked = [options.lapsed for (options,) in driver.calls("claim")]
    assert len(asked) >= 300
    assert asked.count(True) < 60


def test_a_failed_pass_is_logged_and_the_loop_goes_on(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-281, S-282, N-024: at the floor interval; what waits is taken when the database is back."""
    caplog.set_level(logging.INFO, "rowsweep")

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    driver = BrokenDriver(shop.driver, "claim")
    job_id = shop.enqueue(work)
    worker = shop.running(driver=driver)
    until(lambda: len(logged(caplog.records, "jobs.worker.tick-failed")) >= 3)
    assert logged(caplog.records, "jobs.worker.tick-failed")[0]["code"] == "X_DRIVER_UNAVAILABLE"
    driver.broken.clear()
    shop.until_state(job_id, "done")
    assert worker.state == "running"


def test_a_context_that_raises_hands_the_row_back_uncounted(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-290, S-114: shed, for another worker to run."""
    caplog.set_level(logging.INFO, "rowsweep")
    broken = threading.Event()
    broken.set()

    def context() -> None:
        if broken.is_set():
            raise RuntimeError("no services today")

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    job_id = shop.enqueue(work)
    worker = shop.running(context=context)
    until(lambda: bool(logged(caplog.records, "jobs.worker.shed")))
    until(lambda: shop.job(job_id).state == "ready")
    row = shop.job(job_id)
    assert (row.attempt, row.claims, row.last_error) == (0, 1, None)
    assert row.run_at > row.created_at
    until(lambda: worker.stats.in_flight == 0)
    broken.clear()
    shop.make_due(job_id)
    shop.until_state(job_id, "done")


def test_a_driver_without_a_registry_of_workers_is_claimed_from_directly(memory: Shop) -> None:
    """S-057: a third party's driver may leave that store out."""
    from dataclasses import replace

    class Bare(BrokenDriver):
        def control(self) -> Any:
            return replace(super().control(), workers=None)

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    memory.running(driver=Bare(memory.driver))
    memory.until_state(memory.enqueue(work), "done")
    late = memory.enqueue(work, delay="200ms")
    memory.until_state(late, "done")
