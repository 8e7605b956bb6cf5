"""`on_settled`: told once of each job that ended for good, after that is stored, and in nobody's way."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any
from uuid import UUID

import pytest

from rowsweep.clock import real_monotonic
from rowsweep.errors import InvalidDeclaration
from rowsweep.jobs import ambient
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.attempts.settled import Settled
from rowsweep.jobs.concurrency import Keyed
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.jobs.handle import JobHandle
from rowsweep.jobs.registry import reset_jobs
from rowsweep.lifecycle import Lifecycle
from rowsweep.queue.records import LEASE_LAPSED_FINAL_ATTEMPT, ClaimOptions
from rowsweep.worker.run import hooks
from tests.worker.shop import BrokenDriver, Shop, WatchedTimers, logged, until

ONCE = Retry(attempts=1)


class Ear:
    """A hook that notes what it is told, and as whom; it raises so often first, and waits where it is held."""

    def __init__(self, *, fails: int = 0, error: BaseException | None = None, held: bool = False) -> None:
        self.heard: list[Settled[Any, Any]] = []
        self.tenants: list[str | None] = []
        self.attributions: list[str] = []
        self.tries = 0
        self.entered = threading.Event()
        self.go = threading.Event()
        self._fails = fails
        self._error = error or ValueError("no ear")
        if not held:
            self.go.set()

    def __call__(self, settled: Settled[Any, Any]) -> None:
        self.tries += 1
        self.entered.set()
        assert self.go.wait(60)
        if self.tries <= self._fails:
            raise self._error
        self.heard.append(settled)
        self.tenants.append(ambient.enclosing_tenant())
        self.attributions.append(ambient.attribution())

    def only(self) -> Settled[Any, Any]:
        """Wait for the one ending it is told of."""
        until(lambda: bool(self.heard))
        (settled,) = self.heard
        return settled


def left_by_a_crash(shop: Shop, handle: JobHandle[Any, Any], value: Any = None) -> UUID:
    """Enqueue a job and let its last claim have lapsed under a worker that is gone."""
    job_id = shop.enqueue(handle, value)
    (claimed,) = (
        shop.driver.stores()
        .jobs.claim(ClaimOptions(queues=["default"], names=[handle.name], worker_id="gone", limit=1))
        .jobs
    )
    assert claimed.id == job_id
    shop.lapse(job_id)
    return job_id


def test_a_hook_is_told_of_a_completed_job(shop: Shop) -> None:
    """S-412, S-413, S-415, S-029: the parsed input, the very object that was returned, in the body's tenant scope."""
    ear, answer = Ear(), object()

    @job("act", tenant=lambda value: f"shop-{value}", input=int, on_settled=ear)
    def act(ctx: Ctx, number: int) -> object:
        return answer

    job_id = shop.enqueue(act, 7)
    shop.running()
    settled = ear.only()
    assert settled.result is answer
    assert settled == Settled(
        outcome="completed",
        job="act",
        job_id=job_id,
        run_id=shop.job(job_id).run_id,
        attempt=1,
        input=7,
        result=answer,
        error=None,
        code=None,
    )
    assert (ear.tenants, ear.attributions) == (["shop-7"], [f"job:act:{job_id}"])


@pytest.mark.parametrize(("keeps", "outcome", "state"), [(True, "dead-lettered", "dead"), (False, "dropped", "failed")])
def test_a_hook_is_told_of_a_job_that_failed_for_good(shop: Shop, keeps: bool, outcome: str, state: str) -> None:
    """S-412, S-415: with what the row keeps of the error; not of the attempts before."""
    ear = Ear()

    @job("act", tenant="none", retry=Retry(attempts=2, base="0s", dead_letter=keeps), on_settled=ear)
    def act(ctx: Ctx) -> None:
        raise TimeoutError("too late")

    job_id = shop.enqueue(act)
    worker = shop.running()
    settled = ear.only()
    row = shop.job(job_id)
    assert (settled.outcome, row.state, settled.attempt) == (outcome, state, 2)
    assert (settled.error, settled.code) == (row.last_error, row.last_error_code)
    assert (settled.error or "").startswith("TimeoutError: too late")
    until(lambda: worker.stats.in_flight == 0)
    assert ear.tries == 1


def test_a_hook_is_told_of_a_refused_job(shop: Shop) -> None:
    """S-347, S-415: its body never ran; its input is there."""
    ear, gate = Ear(), threading.Event()

    @job("act", tenant="none", input=str, concurrency=Keyed(str, when_busy="fail"), on_settled=ear)
    def act(ctx: Ctx, key: str) -> None:
        assert gate.wait(60)

    shop.enqueue(act, "a")
    worker = shop.running()
    until(lambda: worker.stats.in_flight == 1)
    refused = shop.enqueue(act, "a")
    settled = ear.only()
    gate.set()
    assert (settled.outcome, settled.job_id, settled.input) == ("refused", refused, "a")
    assert (settled.code, shop.job(refused).state) == ("X_JOB_KEY_BUSY", "failed")
    until(lambda: len(ear.heard) == 2)


@pytest.mark.parametrize(("keeps", "outcome"), [(True, "dead-lettered"), (False, "dropped")])
def test_a_hook_is_told_of_a_job_that_a_claim_buried(
    shop: Shop, caplog: pytest.LogCaptureFixture, keeps: bool, outcome: str
) -> None:
    """S-098, S-138, S-415: nothing was raised, so there is no code; a drain waits for it too."""
    caplog.set_level(logging.INFO, "rowsweep")
    ear = Ear(held=True)

    @job("act", tenant="none", input=int, retry=Retry(attempts=1, dead_letter=keeps), on_settled=ear)
    def act(ctx: Ctx, number: int) -> None:
        raise AssertionError("its last attempt is spent")

    buried = left_by_a_crash(shop, act, 7)
    phases = Lifecycle()
    worker = shop.running(lifecycle=phases)
    assert ear.entered.wait(60)
    assert phases.readiness()["in_flight"] == 1
    stopping = threading.Thread(target=worker.stop, name="rowsweep-test", daemon=True)
    stopping.start()
    until(lambda: worker.state == "draining")
    assert shop.job(buried).state in ("dead", "failed")
    ear.go.set()
    stopping.join(10)
    settled = ear.only()
    assert (settled.outcome, settled.job_id, settled.input) == (outcome, buried, 7)
    assert (settled.error, settled.code) == (LEASE_LAPSED_FINAL_ATTEMPT, None)
    assert len(logged(caplog.records, "jobs.claim.exhausted")) == 1
    assert phases.readiness()["in_flight"] == 0


def test_a_hook_is_not_told_of_what_goes_on_or_was_cancelled(shop: Shop) -> None:
    """S-412: never for a retry, a suspension or a cancel."""
    ear, cancelled = Ear(), threading.Event()

    @job("act", tenant="none", input=str, retry=Retry(attempts=3, base="2m"), on_settled=ear)
    def act(ctx: Ctx, how: str) -> None:
        if how == "sleep":
            ctx.step.sleep("long", "1h")
        if how == "fail":
            raise ValueError("once")
        assert cancelled.wait(60)

    stopped = shop.enqueue(act, "cancel")
    worker = shop.running()
    until(lambda: shop.job(stopped).state == "running")
    steering = shop.driver.stores().steering
    assert steering is not None
    steering.cancel(stopped)
    cancelled.set()
    for how in ("sleep", "fail"):
        shop.enqueue(act, how)
    until(lambda: sum(worker.stats.outcomes.values()) == 3)
    until(lambda: worker.stats.in_flight == 0)
    assert worker.stats.outcomes == {"interrupted": 1, "suspended": 1, "retried": 1}
    assert ear.tries == 0


def test_a_hook_is_not_told_by_a_worker_whose_claim_was_taken(shop: Shop) -> None:
    """S-413, S-104: only after a settle that landed; whoever holds the job now will tell it."""
    ear, go = Ear(), threading.Event()

    @job("act", tenant="none", on_settled=ear)
    def act(ctx: Ctx) -> None:
        assert go.wait(60)

    job_id = shop.enqueue(act)
    worker = shop.running()
    until(lambda: shop.job(job_id).state == "running")
    shop.steal(job_id)
    go.set()
    until(lambda: worker.stats.outcomes.get("interrupted") == 1)
    assert ear.tries == 0


def test_an_input_that_no_longer_parses_is_none_and_its_hook_acts_for_nobody(shop: Shop) -> None:
    """S-041, D-38: it fails closed."""

    @job("act", tenant=lambda value: f"shop-{value}", input=str)
    def before(ctx: Ctx, text: str) -> None: ...

    ear = Ear()
    job_id = shop.enqueue(before, "seven")
    reset_jobs()

    @job("act", tenant=lambda value: f"shop-{value}", input=int, on_settled=ear)
    def act(ctx: Ctx, number: int) -> None: ...

    shop.running()
    settled = ear.only()
    assert (settled.outcome, settled.input, settled.code) == ("dead-lettered", None, "X_JOB_INPUT_INVALID")
    assert (shop.job(job_id).state, ear.tenants) == ("dead", [None])


def test_a_tenant_that_cannot_be_told_costs_no_hook_and_no_thread(shop: Shop) -> None:
    """D-38, N-020: it fails closed, also where it exits."""
    knows = [True]

    def tenant(_: str) -> str:
        return "shop-7" if knows[0] else sys.exit(3)

    ear = Ear()

    @job("act", tenant=tenant, input=str, on_settled=ear, retry=ONCE)
    def act(ctx: Ctx, text: str) -> None:
        knows[0] = False

    job_id = shop.enqueue(act, "seven")
    worker = shop.running()
    assert (ear.only().outcome, shop.job(job_id).state, ear.tenants) == ("completed", "done", [None])
    until(lambda: worker.stats.in_flight == 0)


def test_what_a_hook_enqueues_is_its_tenants_and_attributed_to_the_job(shop: Shop) -> None:
    """S-413: the body's scope."""

    @job("letter", tenant=lambda _: "another", input=str)
    def letter(ctx: Ctx, text: str) -> None: ...

    sent: list[UUID] = []

    @job(
        "act", tenant=lambda value: f"shop-{value}", input=int, on_settled=lambda _: sent.append(letter.enqueue("x").id)
    )
    def act(ctx: Ctx, number: int) -> None: ...

    job_id = shop.enqueue(act, 7)
    shop.running()
    until(lambda: bool(sent))
    written = shop.job(sent[0])
    assert (written.tenant_id, written.enqueued_by) == ("shop-7", f"job:act:{job_id}")


def test_a_coroutine_may_be_a_hook(shop: Shop) -> None:
    """N-008."""
    heard: list[str] = []

    async def hear(settled: Settled[Any, Any]) -> None:
        heard.append(f"{settled.outcome} for {ambient.enclosing_tenant()}")

    @job("act", tenant=lambda _: "shop", input=int, on_settled=hear)
    def act(ctx: Ctx, number: int) -> None: ...

    shop.enqueue(act, 7)
    shop.running()
    until(lambda: heard == ["completed for shop"])


def test_a_hook_is_tried_until_it_works(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-414: a failure that passes is nobody's business."""
    caplog.set_level(logging.INFO, "rowsweep")
    ear = Ear(fails=1)

    @job("act", tenant="none", on_settled=ear)
    def act(ctx: Ctx) -> None: ...

    shop.enqueue(act)
    shop.running()
    assert ear.only().outcome == "completed"
    assert ear.tries == 2
    assert logged(caplog.records, "jobs.on_settled.failed") == []


@pytest.mark.slow
@pytest.mark.parametrize("error", [ValueError("no ear"), SystemExit("out")], ids=["error", "exit"])
def test_a_hook_that_fails_three_times_is_reported_and_changes_nothing(
    shop: Shop, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    """S-414, D-15: 3 tries, 0.2 s and 1 s apart; X_JOB_ON_SETTLED_FAILED in the log, the outcome as it was."""
    caplog.set_level(logging.INFO, "rowsweep")
    ear = Ear(fails=9, error=error)

    @job("act", tenant="none", on_settled=ear)
    def act(ctx: Ctx) -> str:
        return "fine"

    began = real_monotonic()
    job_id = shop.enqueue(act)
    worker = shop.running()
    until(lambda: bool(logged(caplog.records, "jobs.on_settled.failed")))
    assert real_monotonic() - began >= 1.2
    (failed,) = logged(caplog.records, "jobs.on_settled.failed")
    assert (failed["job"], failed["job_id"], failed["outcome"]) == ("act", str(job_id), "completed")
    assert (failed["tries"], failed["code"], ear.tries) == (3, "X_JOB_ON_SETTLED_FAILED", 3)
    assert str(error) in failed["cause"]
    assert (shop.job(job_id).state, shop.job(job_id).result) == ("done", "fine")
    until(lambda: worker.stats.in_flight == 0)
    assert worker.stats.outcomes == {"completed": 1}


def test_the_end_is_stored_and_the_slot_is_free_before_the_hook_and_the_run_in_flight_until_after_it(
    shop: Shop,
) -> None:
    """N-037: progress → settle → slot released → on_settled → in-flight finished."""
    ear = Ear(held=True)

    @job("act", tenant="none", concurrency=1, on_settled=ear)
    def act(ctx: Ctx) -> None: ...

    job_id = shop.enqueue(act)
    phases = Lifecycle()
    worker = shop.running(lifecycle=phases)
    assert ear.entered.wait(60)
    slots = shop.driver.stores().slots
    assert slots is not None
    assert (shop.job(job_id).state, slots.holders("job:act")) == ("done", [])
    assert (worker.stats.in_flight, phases.readiness()["in_flight"]) == (1, 1)
    ear.go.set()
    until(lambda: worker.stats.in_flight == 0)
    assert phases.readiness()["in_flight"] == 0


def test_a_slow_hook_delays_no_other_job(shop: Shop) -> None:
    """N-034, N-037: neither its settle nor its start, with one run at a time."""
    ear = Ear(held=True)

    @job("slow", tenant="none", on_settled=ear)
    def slow(ctx: Ctx) -> None: ...

    @job("quick", tenant="none")
    def quick(ctx: Ctx) -> None: ...

    shop.enqueue(slow)
    shop.running(concurrency=1)
    assert ear.entered.wait(60)
    for _ in range(5):
        shop.until_state(shop.enqueue(quick), "done")
    assert not ear.heard
    ear.go.set()
    ear.only()


def test_a_job_whose_hook_is_being_told_needs_no_lease_any_more(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """N-037, S-105: the claim ended with the settle, so nothing is renewed and nothing is lost, as beside it is."""
    caplog.set_level(logging.INFO, "rowsweep")
    ear, go = Ear(held=True), threading.Event()
    driver = BrokenDriver(shop.driver)

    @job("beside", tenant="none")
    def beside(ctx: Ctx) -> None:
        assert go.wait(30)

    @job("act", tenant="none", on_settled=ear)
    def act(ctx: Ctx) -> None: ...

    renewed = shop.enqueue(beside)
    shop.enqueue(act)
    shop.running(driver=driver, renew_every="20ms")
    assert ear.entered.wait(60)
    asked = len(driver.calls("renew")) + 1  # one may have been under way
    until(lambda: len(driver.calls("renew")) >= asked + 3)
    for (claims,) in driver.calls("renew")[asked:]:
        assert [claim.job_id for claim in claims] == [renewed]
    ear.go.set()
    go.set()
    ear.only()
    assert logged(caplog.records, "jobs.lease.lost") == []


def test_hooks_that_cannot_keep_up_keep_the_worker_from_claiming(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-413: what a crash would lose stays bounded; once they have caught up the worker goes on."""
    monkeypatch.setattr(hooks, "BEHIND", 2)
    ear, timers, driver = Ear(held=True), WatchedTimers(), BrokenDriver(shop.driver)

    @job("act", tenant="none", on_settled=ear)
    def act(ctx: Ctx) -> None: ...

    act.enqueue_many([None] * 3)
    worker = shop.running(concurrency=1, driver=driver, timers=timers)
    crew = worker._crew
    assert crew is not None
    until(crew.hooks.is_behind)
    until(lambda: worker.stats.in_flight == 3)
    act.enqueue_many([None] * 5)
    claims = len(driver.calls("claim")) + 1  # one may have been under way
    for _ in range(3):
        sleeps = timers.sleeps
        worker.kick()
        until(lambda: timers.sleeps > sleeps)  # noqa: B023 - called at once
    assert len(driver.calls("claim")) <= claims
    (stats,) = shop.driver.stores().jobs.stats()
    assert (stats.ready, stats.done) == (5, 3)
    ear.go.set()
    until(lambda: len(ear.heard) == 8)


def test_a_settle_whose_answer_was_lost_is_told_once(shop: Shop) -> None:
    """N-036, S-413."""
    ear = Ear()
    driver = BrokenDriver(shop.driver, "settle")

    @job("act", tenant="none", on_settled=ear)
    def act(ctx: Ctx) -> None: ...

    shop.enqueue(act)
    worker = shop.running(driver=driver)
    until(lambda: len(driver.calls("settle")) >= 2)
    assert ear.tries == 0
    driver.broken.clear()
    ear.only()
    until(lambda: worker.stats.in_flight == 0)
    assert ear.tries == 1


def test_a_drain_waits_for_a_hook_and_abandons_it_at_its_deadline(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-302, S-304, D-38: it is work in flight; cut off, its ending is never told."""
    caplog.set_level(logging.INFO, "rowsweep")
    ear = Ear(held=True)

    @job("act", tenant="none", on_settled=ear)
    def act(ctx: Ctx) -> None: ...

    job_id = shop.enqueue(act)
    worker = shop.running(margin="10ms")
    assert ear.entered.wait(60)
    worker.stop(deadline_at=real_monotonic() + 0.1)
    (abandoned,) = logged(caplog.records, "jobs.worker.drain-abandoned")
    assert (abandoned["in_flight"], worker.state, shop.job(job_id).state) == (1, "stopped", "done")
    ear.go.set()


def test_a_drain_that_cuts_off_leaves_out_the_pauses_between_tries(
    memory: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-298, S-414: what is left of the budget is for trying."""
    monkeypatch.setattr(hooks, "ON_SETTLED_PAUSES", (60.0, 60.0))
    ear = Ear(fails=2)

    @job("act", tenant="none", on_settled=ear)
    def act(ctx: Ctx) -> None: ...

    memory.enqueue(act)
    worker = memory.running(margin="4900ms")
    until(lambda: ear.tries == 1)
    worker.stop(deadline_at=real_monotonic() + 5)
    assert ear.only().outcome == "completed"


def test_where_no_thread_can_be_started_a_hook_is_told_all_the_same(
    memory: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-004: an interpreter that is exiting starts none."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "rowsweep-hooks":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    ear = Ear()

    @job("act", tenant="none", on_settled=ear)
    def act(ctx: Ctx) -> None: ...

    memory.enqueue(act)
    worker = memory.running()
    ear.only()
    until(lambda: worker.stats.in_flight == 0)


def test_a_hook_that_cannot_be_called_is_refused() -> None:
    """S-020, S-026."""
    with pytest.raises(InvalidDeclaration) as refused:
        job("act", lambda _: None, tenant="none", on_settled="print")  # type: ignore[call-overload]
    assert refused.value.meta["field"] == "on_settled"


def test_a_declaration_names_its_hook() -> None:
    """S-025."""

    def hear(settled: Settled[Any, Any]) -> None: ...

    try:
        assert job("act", lambda _: None, tenant="none", on_settled=hear).describe()["on_settled"].endswith("hear")
        assert job("deaf", lambda _: None, tenant="none").describe()["on_settled"] is None
    finally:
        reset_jobs()
