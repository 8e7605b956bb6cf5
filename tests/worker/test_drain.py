"""Draining a worker: what finishes, what is cut off, and what is handed back."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from typing import Any

import pytest

from rowsweep.clock import real_monotonic
from rowsweep.errors import Draining, Interrupted, InvalidOption, NoQueuesNamed
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.lifecycle import Lifecycle
from tests.worker.shop import BrokenDriver, Shop, logged, until


class Gate:
    """A body's meeting point with its test."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.go = threading.Event()


def in_background(call: Any) -> threading.Thread:
    """Start a call on a thread."""
    thread = threading.Thread(target=call, name="rowsweep-test", daemon=True)
    thread.start()
    return thread


def test_a_manual_stop_waits_for_the_run_and_takes_no_more(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-305, S-278, S-294: what runs is completed, what waits stays."""
    caplog.set_level(logging.INFO, "rowsweep")
    gate = Gate()

    @job(tenant="none")
    def work(ctx: Ctx) -> bool:
        gate.started.set()
        assert gate.go.wait(60)
        return ctx.signal.aborted

    job_id = shop.enqueue(work)
    worker = shop.running()
    assert gate.started.wait(60)
    stopping = in_background(worker.stop)
    until(lambda: worker.state == "draining")
    waiting = shop.enqueue(work)
    worker.kick()
    with pytest.raises(Draining):
        worker.start()
    gate.go.set()
    stopping.join(10)
    assert worker.state == "stopped"
    assert shop.job(job_id).result is False
    assert shop.job(waiting).state == "ready"
    (draining,) = logged(caplog.records, "jobs.worker.draining")
    assert (draining["reason"], draining["in_flight"]) == ("stop", 1)
    (stopped,) = logged(caplog.records, "jobs.worker.stopped")
    assert (stopped["processed"], stopped["interrupted"]) == (1, 0)


@pytest.mark.parametrize("where", ["body", "coroutine", "hook"])
def test_a_worker_that_is_stopped_by_a_run_of_its_own_stops_once_that_has_ended(shop: Shop, where: str) -> None:
    """S-305: it would wait for itself."""
    seen: list[str] = []

    def stop() -> str:
        worker.stop("enough")
        seen.append(worker.state)
        return worker.state

    async def in_coroutine(_: Ctx) -> str:
        return stop()

    def in_body(_: Ctx) -> str | None:
        return None if where == "hook" else stop()

    work = job(
        "work",
        in_coroutine if where == "coroutine" else in_body,
        tenant="none",
        on_settled=(lambda _: stop()) if where == "hook" else None,
    )
    worker = shop.worker()
    job_id = shop.enqueue(work)
    worker.start()
    assert shop.until_state(job_id, "done").last_error is None
    until(lambda: worker.state == "stopped")
    assert seen == ["draining"]
    worker.start()
    assert worker.state == "running"


def test_a_shutdown_lets_a_run_finish_within_the_budget(shop: Shop) -> None:
    """S-293, S-298, S-302: nothing is aborted before the margin."""
    gate = Gate()
    phases = Lifecycle("20s")

    @job(tenant="none")
    def work(ctx: Ctx) -> list[bool]:
        gate.started.set()
        assert gate.go.wait(60)
        return [ctx.signal.draining, ctx.signal.aborted]

    job_id = shop.enqueue(work)
    worker = shop.running(lifecycle=phases)
    assert gate.started.wait(60)
    assert phases.names("accept") == [f"jobs.worker.{worker.id}.accept"]
    assert phases.names("close") == [f"jobs.worker.{worker.id}"]
    assert phases.readiness()["in_flight"] == 1
    ending = in_background(lambda: phases.shutdown("deploy"))
    until(lambda: worker.state == "draining")
    gate.go.set()
    ending.join(10)
    assert worker.state == "stopped"
    assert shop.job(job_id).result == [True, False]
    assert worker.stats.processed == 1


def test_what_is_still_running_at_the_margin_is_cut_off_and_handed_back_uncounted(shop: Shop) -> None:
    """S-298, S-299, S-300, S-312, S-115: interrupted, decided from the signal, due now, attempt given back."""
    gate = Gate()
    phases = Lifecycle("1500ms")

    @job(tenant="none")
    def work(ctx: Ctx) -> None:
        gate.started.set()
        assert ctx.signal.wait(60)
        raise ValueError("whatever the abort made of it")

    job_id = shop.enqueue(work)
    worker = shop.running(lifecycle=phases, margin="1s")
    assert gate.started.wait(60)
    phases.shutdown("deploy")
    row = shop.job(job_id)
    assert (row.state, row.attempt, row.claims, row.last_error) == ("ready", 0, 1, None)
    assert worker.stats.outcomes == {"interrupted": 1}
    assert worker.stats.interrupted == 1


def test_a_run_that_completes_after_the_cut_off_is_completed(shop: Shop) -> None:
    """S-299."""
    gate = Gate()
    phases = Lifecycle("1500ms")

    @job(tenant="none")
    def work(ctx: Ctx) -> str:
        gate.started.set()
        assert ctx.signal.wait(60)
        return "done all the same"

    job_id = shop.enqueue(work)
    shop.running(lifecycle=phases, margin="1s")
    assert gate.started.wait(60)
    phases.shutdown("deploy")
    assert shop.job(job_id).state == "done"


def test_a_body_that_ignores_its_signal_loses_its_claim_at_the_end(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """S-301, S-306: the claim is handed back for another worker; what the body still does counts for nothing."""
    caplog.set_level(logging.INFO, "rowsweep")
    gate = Gate()
    phases = Lifecycle("1500ms")
    tried: list[str] = []

    @job(tenant="none")
    def work(ctx: Ctx) -> str:
        gate.started.set()
        assert gate.go.wait(60)
        try:
            ctx.step.checkpoint("late").put(1)
        except Interrupted:
            tried.append("interrupted")
        return "too late"

    job_id = shop.enqueue(work)
    worker = shop.running(lifecycle=phases, margin="1s")
    assert gate.started.wait(60)
    phases.shutdown("deploy")
    assert worker.state == "stopped"
    row = shop.job(job_id)
    assert (row.state, row.attempt) == ("ready", 0)
    gate.go.set()
    until(lambda: tried == ["interrupted"])
    assert shop.job(job_id).state == "ready"
    assert shop.steps(job_id) == {}


def test_a_sweep_that_stops_early_while_draining_is_interrupted(shop: Shop) -> None:
    """N-042: it need not wait for the cut-off."""
    gate = Gate()
    phases = Lifecycle("60s")

    @job(tenant="none")
    def work(ctx: Ctx) -> None:
        gate.started.set()
        until(lambda: ctx.signal.draining)
        raise Interrupted(Draining("after this batch", fix="none needed"))

    job_id = shop.enqueue(work)
    worker = shop.running(lifecycle=phases)
    assert gate.started.wait(60)
    begun = real_monotonic()
    phases.shutdown("deploy")
    assert real_monotonic() - begun < 10
    assert (shop.job(job_id).state, shop.job(job_id).attempt) == ("ready", 0)
    assert worker.stats.interrupted == 1


def test_an_abandoned_drain_says_so_and_still_stops(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-304, S-306: where the database takes no settle, the lease lapses and the queue delivers again."""
    caplog.set_level(logging.INFO, "rowsweep")

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    driver = BrokenDriver(shop.driver, "settle")
    job_id = shop.enqueue(work)
    worker = shop.running(driver=driver)
    until(lambda: bool(driver.calls("settle")))
    worker.stop("now", deadline_at=real_monotonic() + 0.2)
    assert worker.state == "stopped"
    (abandoned,) = logged(caplog.records, "jobs.worker.drain-abandoned")
    assert (abandoned["reason"], abandoned["in_flight"]) == ("now", 1)
    assert "600s" in abandoned["fix"]
    assert shop.job(job_id).state == "running"


def test_a_stopped_worker_starts_again_under_a_fresh_id(shop: Shop) -> None:
    """S-284, S-307, S-308: one pair of hooks at a time, and another teardown."""
    phases = Lifecycle()

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    worker = shop.worker(lifecycle=phases, id="box")
    ids = []
    for _ in range(3):
        worker.start()
        worker.start()
        ids.append(worker.id)
        assert len(phases.names("accept")) == len(phases.names("close")) == 1
        shop.until_state(shop.enqueue(work), "done")
        worker.stop()
        worker.stop()
        assert phases.names("accept") == phases.names("close") == []
    assert len(set(ids)) == 3
    assert all(str(made).startswith("box:") for made in ids)


def test_a_stopped_worker_that_ticks_is_idle_again_and_ends_its_threads_when_it_is_stopped(shop: Shop) -> None:
    """S-278, S-307: with one crew for all its ticks, under a fresh id."""

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    worker = shop.running()
    former = worker.id
    worker.stop()
    ids = set()
    for _ in range(2):
        shop.enqueue(work)
        assert [execution.outcome for execution in worker.tick()] == ["completed"]
        assert worker.state == "idle"
        ids.add(worker.id)
    assert len(ids) == 1
    assert former not in ids
    ours = [thread for thread in threading.enumerate() if thread.name in ("rowsweep-keeper", "rowsweep-settler")]
    assert len(ours) == 2
    worker.stop()
    assert worker.state == "stopped"
    until(lambda: not any(thread.is_alive() for thread in ours))


def test_a_worker_that_does_not_drain_on_shutdown_registers_nothing(memory: Shop) -> None:
    """S-310."""
    phases = Lifecycle()
    memory.running(lifecycle=phases, drain_on_shutdown=False)
    assert phases.names("accept") == phases.names("close") == []


def test_a_worker_announces_itself_and_leaves(shop: Shop) -> None:
    """S-416, D-21, N-043: on its first look."""
    workers = shop.driver.stores().workers
    assert workers is not None

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    worker = shop.running(concurrency={"default": 3}, app_version="1.2")
    until(lambda: bool(workers.live()))
    ((info, _),) = workers.live()
    assert (info.id, info.state, list(info.names), info.app_version) == (worker.id, "running", ["work"], "1.2")
    assert info.concurrency == {"default": 3}
    worker.stop()
    assert workers.live() == []


def test_a_tick_waits_for_the_runs_it_started_and_answers_them(shop: Shop) -> None:
    """S-279, S-120: without a start."""

    @job(tenant="none", input=int)
    def work(ctx: Ctx, number: int) -> int:
        ctx.step.run("first", lambda: number)
        return number

    ids = {shop.enqueue(work, number) for number in range(3)}
    worker = shop.worker()
    executions = worker.tick()
    assert {execution.job_id for execution in executions} == ids
    assert {execution.outcome for execution in executions} == {"completed"}
    assert {execution.steps for execution in executions} == {("first",)}
    assert worker.tick() == []
    assert worker.state == "idle"


def test_options_that_cannot_work_are_refused(memory: Shop) -> None:
    """S-276, S-324, S-064, S-271, D-37."""
    for given in (
        {"queues": "default"},
        {"queues": ["a", "a"]},
        {"concurrency": 0},
        {"concurrency": {"default": 0}},
        {"poll": "0s"},
        {"poll": 2},
        {"visibility": "30s", "renew_every": "11s"},
        {"renew_every": "0s"},
        {"concurrency": 10**6},
        {"concurrency": {"default": 10**30}},
        {"poll": "99999999d"},
        {"visibility": "99999999d"},
        {"names": "mail"},
        {"id": "a\x00"},
        {"id": 5},
        {"context": None},
    ):
        with pytest.raises(InvalidOption):
            memory.worker(**given)
    with pytest.raises(NoQueuesNamed):
        memory.worker(queues=[])


def test_the_table_of_concurrency_is_read_by_key_alone() -> None:
    """S-272, S-273."""
    from rowsweep.worker.options import WorkerOptions

    options = WorkerOptions(queues=["mail", "items", "__class__"], concurrency={"mail": 2}, poll=timedelta(seconds=1))
    assert [options.concurrency_of(queue) for queue in options.queues] == [2, 8, 8]
