"""Admission: caps that hold across workers, what waits, what is refused, and what becomes of a slot."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from rowsweep.errors import ConcurrencyUnenforceable, DriverUnavailable
from rowsweep.jobs.concurrency import Keyed
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.jobs.retry import Retry
from rowsweep.queue.contract import Driver, Stores
from rowsweep.queue.holds import SlotHolder, SlotStore
from rowsweep.queue.records import ClaimOptions, claim_of
from rowsweep.worker.admission.limiter import ConcurrencyLimiter
from tests.worker.shop import BrokenDriver, MemoryHands, PostgresHands, Shop, logged, until


class Gauge:
    """Count how many bodies of each label are inside at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: Counter[object] = Counter()
        self.most: Counter[object] = Counter()
        self.entered: Counter[object] = Counter()

    def visit(self, label: object, seconds: float = 0.01) -> None:
        with self._lock:
            self._inside[label] += 1
            self.entered[label] += 1
            self.most[label] = max(self.most[label], self._inside[label])
        time.sleep(seconds)
        with self._lock:
            self._inside[label] -= 1


class BrokenSlots:
    """A driver whose slot store refuses the calls named in `broken`."""

    def __init__(self, driver: Driver, *broken: str) -> None:
        self._driver = driver
        self.broken = set(broken)
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def control(self) -> Stores:
        stores = self._driver.control()
        assert stores.slots is not None
        return replace(stores, slots=cast("SlotStore", _Between(stores.slots, self)))


class _Between:
    def __init__(self, slots: SlotStore, owner: BrokenSlots) -> None:
        self._slots = slots
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        self._owner.asked[name] += 1
        if name in self._owner.broken:
            raise DriverUnavailable("the database is gone", fix="wait")
        return getattr(self._slots, name)


def same(value: object) -> str:
    """Answer one key for whatever input."""
    return "k"


def holders(shop: Shop, key: str) -> list[SlotHolder]:
    """Answer who holds a key's slots."""
    slots = shop.driver.stores().slots
    assert slots is not None
    return slots.holders(key)


def give_slots_away(shop: Shop) -> None:
    """Let every slot be another holder's, as after a TTL that passed."""
    if isinstance(shop.hands, PostgresHands):
        shop.hands.connection.execute("update x_job_leases set holder = 'thief'")
        return
    assert isinstance(shop.hands, MemoryHands)
    state = shop.hands._state
    with state.lock:
        for at, row in state.slots.items():
            state.slots[at] = replace(row, holder="thief", expires_at=datetime.now(UTC) + timedelta(minutes=1))


def test_a_cap_of_one_holds_across_workers(shop: Shop) -> None:
    """S-343, S-332: two workers with four runs each; every job still runs once."""
    gauge = Gauge()

    @job("capped", tenant="none", input=int, concurrency=1)
    def capped(ctx: Ctx, value: int) -> None:
        gauge.visit("capped")

    shop.running(concurrency=4)
    shop.running(concurrency=4)
    ids = [shop.enqueue(capped, value) for value in range(12)]
    for job_id in ids:
        shop.until_state(job_id, "done")
    assert gauge.most["capped"] == 1
    assert gauge.entered["capped"] == 12
    until(lambda: not holders(shop, "job:capped"))
    assert {shop.job(job_id).attempt for job_id in ids} == {1}


def test_a_cap_by_key_holds_for_each_key(shop: Shop) -> None:
    """S-343, D-13: others of its name run beside it."""
    gauge = Gauge()

    @job("keyed", tenant="none", input=str, concurrency=Keyed(lambda value: value[0]))
    def keyed(ctx: Ctx, value: str) -> None:
        gauge.visit(value[0], 0.05)
        gauge.visit("all", 0.05)

    shop.running(concurrency=8)
    ids = [shop.enqueue(keyed, f"{key}{n}") for n in range(3) for key in "abc"]
    for job_id in ids:
        shop.until_state(job_id, "done")
    assert [gauge.most[key] for key in "abc"] == [1, 1, 1]
    assert gauge.most["all"] >= 2


def test_both_caps_hold_and_a_busy_key_gives_the_plain_slot_back(shop: Shop) -> None:
    """D-13: the plain slot is taken first, and given back if the keyed one is busy."""
    gauge, go = Gauge(), threading.Event()

    @job("both", tenant="none", input=str, concurrency=(2, Keyed(str)))
    def both(ctx: Ctx, value: str) -> None:
        assert go.wait(20)
        gauge.visit("all", 0.02)

    first = shop.enqueue(both, "a")
    worker = shop.running(concurrency=8)
    until(lambda: worker.stats.in_flight == 1)
    waiting = shop.enqueue(both, "a")
    beside = shop.enqueue(both, "b")
    held = ("job:both", "job:both:a", "job:both:b")
    until(lambda: [len(holders(shop, key)) for key in held] == [2, 1, 1] and shop.job(waiting).state == "ready")
    go.set()
    for job_id in (first, waiting, beside):
        shop.until_state(job_id, "done")
    assert gauge.most["all"] <= 2


def test_a_job_that_waits_is_shed_uncounted(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-347, S-348, S-113, S-114, D-14: over the plain cap every job waits; nothing failed."""
    caplog.set_level(logging.INFO, "rowsweep")
    go = threading.Event()

    @job("slow", tenant="none", input=str, concurrency=(1, Keyed(str, when_busy="fail")), retry=Retry(attempts=1))
    def slow(ctx: Ctx, value: str) -> None:
        assert go.wait(20)

    first = shop.enqueue(slow, "a")
    shop.running(concurrency=4)
    until(lambda: bool(holders(shop, "job:slow")))
    other = shop.running(concurrency=4)
    waiting = shop.enqueue(slow, "b")
    until(lambda: bool(logged(caplog.records, "jobs.worker.shed")))
    fields = logged(caplog.records, "jobs.worker.shed")[0]
    assert fields["worker_id"] == other.id
    assert (fields["job"], fields["job_id"], fields["reason"]) == ("slow", str(waiting), "concurrency")
    until(lambda: shop.job(waiting).state == "ready")
    row = shop.job(waiting)
    assert (row.attempt, row.last_error, row.stop_reason) == (0, None, None)
    go.set()
    shop.until_state(first, "done")
    shop.make_due(waiting)
    assert shop.until_state(waiting, "done").attempt == 1


def test_rows_that_wait_for_a_full_cap_are_not_claimed_and_shed_over_and_over(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """N-021: at most once a second for a worker that does not hold it, never for the one that does."""
    caplog.set_level(logging.INFO, "rowsweep")
    go = threading.Event()

    @job("slow", tenant="none", input=int, concurrency=1)
    def slow(ctx: Ctx, value: int) -> None:
        assert go.wait(20)

    @job("quick", tenant="none", input=int)
    def quick(ctx: Ctx, value: int) -> None: ...

    held = shop.enqueue(slow, 0)
    holder = shop.running(concurrency=2)
    until(lambda: bool(holders(shop, "job:slow")))
    assert shop.job(held).state == "running"
    for value in range(40):
        shop.enqueue(slow, value)
    other = shop.running(concurrency=2)
    began = time.monotonic()
    while time.monotonic() - began < 2.5:
        shop.until_state(shop.enqueue(quick, 1), "done")
    sheds = logged(caplog.records, "jobs.worker.shed")
    assert [fields for fields in sheds if fields["worker_id"] == holder.id] == []
    assert 1 <= len([fields for fields in sheds if fields["worker_id"] == other.id]) <= 6
    go.set()


def test_a_backlog_behind_a_busy_key_starves_nobody(shop: Shop) -> None:
    """S-348: hundreds of one key wait, and another key's job behind them starts at once."""
    go = threading.Event()

    @job("tenants", tenant="none", input=str, concurrency=Keyed(str))
    def tenants(ctx: Ctx, value: str) -> None:
        if value == "big":
            assert go.wait(30)

    tenants.enqueue_many(["big"] * 300)
    shop.running(concurrency=2)
    until(lambda: len(holders(shop, "job:tenants:big")) == 1)
    for value in "abc":
        shop.until_state(shop.enqueue(tenants, value), "done")
    go.set()


def test_a_key_s_own_backlog_is_worked_without_a_pause(shop: Shop) -> None:
    """N-021, N-031: a slot given back here is room at once, and the key's rows are reached again."""

    @job("tenants", tenant="none", input=int, concurrency=Keyed(same))
    def tenants(ctx: Ctx, value: int) -> None: ...

    ids = [result.id for result in tenants.enqueue_many(list(range(40)))]
    worker = shop.running(concurrency=3, poll="10s", poll_floor="5s", poll_with_wake="10s")
    until(lambda: worker.stats.processed == 40)
    assert {shop.job(job_id).claims for job_id in ids} == {1}


def test_a_job_that_does_not_wait_is_refused_for_good(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-347, S-137, D-14: its body never runs, its attempt counts, whatever the retry policy; never a dead letter."""
    caplog.set_level(logging.INFO, "rowsweep")
    go, ran = threading.Event(), Counter[int]()

    @job("strict", tenant="none", input=int, concurrency=Keyed(same, 1, "fail"))
    def strict(ctx: Ctx, value: int) -> None:
        ran[value] += 1
        assert go.wait(20)

    first = shop.enqueue(strict, 0)
    worker = shop.running(concurrency=8)
    until(lambda: ran == {0: 1})
    ids = [shop.enqueue(strict, value) for value in range(1, 6)]
    rows = [shop.until_state(job_id, "failed") for job_id in ids]
    assert {(row.last_error_code, row.stop_reason, row.attempt) for row in rows} == {("X_JOB_KEY_BUSY", "busy", 1)}
    assert ran == {0: 1}
    until(lambda: worker.stats.outcomes.get("refused") == 5)
    finished = [fields for fields in logged(caplog.records, "jobs.run.finished") if fields["outcome"] == "refused"]
    assert {fields["job_id"] for fields in finished} == {str(job_id) for job_id in ids}
    failed = logged(caplog.records, "jobs.attempt.failed")
    assert {(fields["stop_reason"], fields["code"]) for fields in failed} == {("busy", "X_JOB_KEY_BUSY")}
    inspection = shop.driver.stores().inspection
    assert inspection is not None
    assert inspection.dead_letters() == []
    go.set()
    shop.until_state(first, "done")
    shop.until_state(shop.enqueue(strict, 9), "done")


def test_a_tick_answers_what_was_refused_and_not_what_was_shed(shop: Shop) -> None:
    """S-434, S-120."""
    go = threading.Event()

    @job("strict", tenant="none", input=int, concurrency=Keyed(same, 1, "fail"))
    def strict(ctx: Ctx, value: int) -> None:
        assert go.wait(20)

    @job("patient", tenant="none", input=int, concurrency=Keyed(same))
    def patient(ctx: Ctx, value: int) -> None:
        assert go.wait(20)

    held = [shop.enqueue(strict, 0), shop.enqueue(patient, 0)]
    shop.running(concurrency=4)
    until(lambda: all(holders(shop, f"job:{name}:k") for name in ("strict", "patient")))
    assert {shop.job(job_id).state for job_id in held} == {"running"}
    refused, shed = shop.enqueue(strict, 1, queue="hand"), shop.enqueue(patient, 1, queue="hand")
    (execution,) = shop.worker(queues=["hand"]).tick()
    assert (execution.outcome, execution.job_id) == ("refused", refused)
    assert getattr(execution.error, "code", None) == "X_JOB_KEY_BUSY"
    shop.until_state(shed, "ready")
    go.set()


def test_a_slot_is_given_back_before_the_run_is_out_of_flight(shop: Shop) -> None:
    """S-340, N-037: a worker that has stopped holds none, so the next deploy need not wait for a TTL."""

    @job("capped", tenant="none", concurrency=(1, Keyed(same)), input=int)
    def capped(ctx: Ctx, value: int) -> None:
        ctx.signal.wait(20)
        ctx.signal.raise_if_aborted()

    job_id = shop.enqueue(capped, 1)
    worker = shop.running()
    until(lambda: bool(holders(shop, "job:capped:k")))
    assert len(holders(shop, "job:capped")) == 1
    from rowsweep.clock import real_monotonic

    worker.stop(deadline_at=real_monotonic() + 1)
    assert worker.stats.in_flight == 0
    assert holders(shop, "job:capped") == holders(shop, "job:capped:k") == []
    assert shop.job(job_id).state == "ready"


def test_a_release_that_fails_ends_by_its_ttl_and_holds_up_nothing(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """S-340: it swallows its own failures."""
    caplog.set_level(logging.INFO, "rowsweep")

    @job("capped", tenant="none", concurrency=1)
    def capped(ctx: Ctx) -> None: ...

    driver = BrokenSlots(shop.driver, "release")
    worker = shop.running(driver=driver, visibility="900ms", renew_every="300ms")
    first = shop.enqueue(capped)
    shop.until_state(first, "done")
    until(lambda: worker.stats.processed == 1 and worker.stats.in_flight == 0)
    assert logged(caplog.records, "jobs.heartbeat.failed")
    driver.broken.clear()
    shop.until_state(shop.enqueue(capped), "done")


def test_a_run_keeps_its_slot_for_as_long_as_it_lasts(shop: Shop) -> None:
    """S-332, S-329: renewed with the job's lease, well past its TTL."""
    go = threading.Event()

    @job("long", tenant="none", concurrency=1)
    def long(ctx: Ctx) -> None:
        assert go.wait(20)

    driver = BrokenSlots(shop.driver)
    job_id = shop.enqueue(long)
    shop.running(driver=driver, visibility="600ms", renew_every="200ms")
    until(lambda: bool(holders(shop, "job:long")))
    (before,) = holders(shop, "job:long")
    until(lambda: driver.asked["renew"] >= 8)
    (after,) = holders(shop, "job:long")
    assert after.expires_at > before.expires_at
    assert after.holder == before.holder
    go.set()
    shop.until_state(job_id, "done")


def test_a_slot_that_another_has_aborts_the_run(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-337, S-341, S-146: logged once, with a code of its own; the attempt is tried again."""
    caplog.set_level(logging.INFO, "rowsweep")
    reasons: list[object] = []

    @job("long", tenant="none", concurrency=1)
    def long(ctx: Ctx) -> None:
        if not reasons:
            ctx.signal.wait(20)
            reasons.append(ctx.signal.reason)
            ctx.signal.raise_if_aborted()

    job_id = shop.enqueue(long)
    worker = shop.running(visibility="1500ms", renew_every="100ms")
    until(lambda: bool(holders(shop, "job:long")))
    give_slots_away(shop)
    until(lambda: bool(logged(caplog.records, "jobs.worker.slot-lost")))
    (fields,) = logged(caplog.records, "jobs.worker.slot-lost")
    assert fields["worker_id"] == worker.id
    assert (fields["job"], fields["job_id"], fields["lease_key"], fields["slot"]) == (
        "long",
        str(job_id),
        "job:long",
        0,
    )
    assert fields["code"] == "X_JOB_SLOT_LOST"
    until(lambda: worker.stats.outcomes.get("retried", 0) >= 1)
    assert getattr(reasons[0], "code", None) == "X_JOB_SLOT_LOST"
    assert shop.job(job_id).last_error_code == "X_JOB_SLOT_LOST"


def test_a_ttl_without_a_renewal_that_landed_aborts_the_run(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-338, S-106: a slot is held, not owned; a statement that fails is no loss until then."""
    caplog.set_level(logging.INFO, "rowsweep")
    waited: list[float] = []

    @job("long", tenant="none", concurrency=1, retry=Retry(attempts=1))
    def long(ctx: Ctx) -> None:
        began = time.monotonic()
        ctx.signal.wait(20)
        waited.append(time.monotonic() - began)
        ctx.signal.raise_if_aborted()

    driver = BrokenSlots(shop.driver, "renew")
    job_id = shop.enqueue(long)
    shop.running(driver=driver, visibility="1200ms", renew_every="100ms")
    row = shop.until_state(job_id, "dead")
    assert row.last_error_code == "X_JOB_SLOT_LOST"
    assert waited[0] > 0.8
    assert len(logged(caplog.records, "jobs.worker.slot-lost")) == 1
    assert logged(caplog.records, "jobs.lease.lost") == []


def test_a_start_over_a_driver_without_slots_is_refused(memory: Shop) -> None:
    """S-344, S-285: naming every job that declares concurrency, before anything runs."""

    class Bare(BrokenDriver):
        def control(self) -> Any:
            return replace(super().control(), slots=None)

    @job("free", tenant="none")
    def free(ctx: Ctx) -> None: ...

    memory.running(driver=Bare(memory.driver)).stop()

    @job("one", tenant="none", concurrency=1)
    def one(ctx: Ctx) -> None: ...

    @job("two", tenant="none", input=int, concurrency=Keyed(str))
    def two(ctx: Ctx, value: int) -> None: ...

    worker = memory.worker(driver=Bare(memory.driver))
    with pytest.raises(ConcurrencyUnenforceable) as refused:
        worker.start()
    assert refused.value.meta["names"] == ["one", "two"]
    assert worker.state == "idle"
    memory.running(driver=Bare(memory.driver), names=["free"]).stop()


def test_a_slot_that_cannot_be_asked_for_leaves_the_row_to_its_visibility(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """S-292, S-289: the limiter's lease is taken back, and the other jobs of the pass run."""
    caplog.set_level(logging.INFO, "rowsweep")

    @job("capped", tenant="none", concurrency=1)
    def capped(ctx: Ctx) -> None: ...

    @job("free", tenant="none")
    def free(ctx: Ctx) -> None: ...

    limiter = ConcurrencyLimiter(total=2, rate_per_tenant=(3, "1h"))
    driver = BrokenSlots(shop.driver, "acquire")
    stuck, other = shop.enqueue(capped), shop.enqueue(free)
    worker = shop.running(driver=driver, limiter=limiter, visibility="900ms", renew_every="300ms")
    shop.until_state(other, "done")
    until(lambda: bool(logged(caplog.records, "jobs.worker.tick-failed")))
    assert shop.job(stuck).state == "running"
    until(lambda: worker.stats.in_flight == 0)
    driver.broken.clear()
    shop.until_state(stuck, "done")
    assert shop.job(stuck).claims >= 2


def test_a_context_that_raises_gives_the_slot_back(shop: Shop) -> None:
    """S-290: all that was acquired, and the row too."""
    broken = threading.Event()
    broken.set()

    def context() -> None:
        if broken.is_set():
            raise RuntimeError("no services today")

    @job("capped", tenant="none", concurrency=1)
    def capped(ctx: Ctx) -> None: ...

    job_id = shop.enqueue(capped)
    worker = shop.running(context=context, limiter=ConcurrencyLimiter(total=1))
    until(lambda: shop.job(job_id).claims == 1 and shop.job(job_id).state == "ready")
    until(lambda: worker.stats.in_flight == 0)
    assert holders(shop, "job:capped") == []
    broken.clear()
    shop.make_due(job_id)
    shop.until_state(job_id, "done")


def test_a_sweep_s_runs_over_one_input_wait_for_each_other(shop: Shop) -> None:
    """N-073: by the key its input gives it, though both are on the queue."""
    import rowsweep as rs
    from rowsweep.jobs.request import EnqueueOptions

    sweep = rs.backfill("totals", rows=rs.Rows("orders"), set={"n": "1"})
    requests = [sweep.request(None, EnqueueOptions()) for _ in range(2)]
    first, second = (result.id for result in shop.driver.stores().jobs.enqueue(requests))
    gauge, go = Gauge(), threading.Event()

    def body(ctx: Any) -> None:
        assert go.wait(20)
        gauge.visit("pass", 0.05)

    sweep.body = body
    worker = shop.running(concurrency=4)
    until(lambda: worker.stats.in_flight == 1)
    states = {shop.job(first).state, shop.job(second).state}
    assert states == {"running", "ready"}
    go.set()
    for job_id in (first, second):
        shop.until_state(job_id, "done")
    assert gauge.most["pass"] == 1


def test_a_lost_claim_is_the_only_loss_that_is_reported(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-325, S-338: with the lease goes the slot; the run ends for one reason."""
    caplog.set_level(logging.INFO, "rowsweep")

    @job("long", tenant="none", concurrency=1)
    def long(ctx: Ctx) -> None:
        ctx.signal.wait(20)
        ctx.signal.raise_if_aborted()

    class Dumb(BrokenSlots):
        """Refuse the renewals of leases and of slots alike."""

        def control(self) -> Stores:
            stores = super().control()
            return replace(stores, jobs=cast("Any", _Deaf(stores.jobs)))

    job_id = shop.enqueue(long)
    worker = shop.running(driver=Dumb(shop.driver, "renew"), visibility="1200ms", renew_every="100ms")
    until(lambda: worker.stats.outcomes.get("interrupted", 0) >= 1)
    assert {fields["code"] for fields in logged(caplog.records, "jobs.lease.lost")} == {"X_JOB_LEASE_LOST"}
    assert logged(caplog.records, "jobs.worker.slot-lost") == []
    assert logged(caplog.records, "jobs.attempt.failed") == []
    assert shop.job(job_id).attempt >= 1


def test_a_job_whose_lease_lapsed_finds_its_slot_expired(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-332, N-039: no slot outlasts the lease of its job, so a job that is taken over need not wait for it."""
    caplog.set_level(logging.INFO, "rowsweep")

    @job("capped", tenant="none", concurrency=1)
    def capped(ctx: Ctx) -> None: ...

    job_id = shop.enqueue(capped)
    stores = shop.driver.stores()
    assert stores.slots is not None
    began = time.monotonic()
    options = ClaimOptions(queues=["default"], names=["capped"], worker_id="gone", limit=1, visibility_seconds=1.0)
    (taken,) = stores.jobs.claim(options).jobs
    ttl = 1.0 - (time.monotonic() - began)
    assert stores.slots.acquire("job:capped", limit=1, ttl_seconds=ttl, claim=claim_of(taken)) is not None
    shop.running()
    assert shop.until_state(job_id, "done").claims == 2
    assert logged(caplog.records, "jobs.worker.shed") == []


class _Deaf:
    def __init__(self, jobs: Any) -> None:
        self._jobs = jobs

    def renew(self, *claims: Any, **given: Any) -> Any:
        raise DriverUnavailable("the database is gone", fix="wait")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jobs, name)
