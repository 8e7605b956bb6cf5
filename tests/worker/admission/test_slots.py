"""The slots of a run: given back when it ends, kept for as long as it lasts, and lost."""

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
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.concurrency import Keyed
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.queue.contract import Driver, Stores
from rowsweep.queue.records import ClaimOptions, claim_of
from rowsweep.queue.stores.holds import SlotStore
from rowsweep.worker.admission.limiter import ConcurrencyLimiter
from tests.worker.admission.holders import holders, same
from tests.worker.shop import BrokenDriver, MemoryHands, PostgresHands, Shop, logged, until


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


@pytest.mark.slow
def test_a_run_keeps_its_slot_for_as_long_as_it_lasts(shop: Shop) -> None:
    """S-332, S-329: renewed with the job's lease, well past its TTL."""
    go = threading.Event()

    @job("long", tenant="none", concurrency=1)
    def long(ctx: Ctx) -> None:
        assert go.wait(60)

    driver = BrokenSlots(shop.driver)
    job_id = shop.enqueue(long)
    shop.running(driver=driver, visibility="3s", renew_every="100ms")
    until(lambda: bool(holders(shop, "job:long")))
    (before,) = holders(shop, "job:long")
    until(lambda: holders(shop, "job:long")[0].expires_at - before.expires_at > timedelta(seconds=3))
    assert holders(shop, "job:long")[0].holder == before.holder
    assert driver.asked["renew"] > 3
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
    worker = shop.running(visibility="6s", renew_every="100ms")
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


@pytest.mark.slow
def test_a_ttl_without_a_renewal_that_landed_aborts_the_run(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-338, S-106: a slot is held, not owned; a statement that fails is no loss until then."""
    caplog.set_level(logging.INFO, "rowsweep")
    waited: list[float] = []

    @job("long", tenant="none", concurrency=1, retry=Retry(attempts=1))
    def long(ctx: Ctx) -> None:
        ctx.signal.wait(20)
        waited.append(time.monotonic() - began)
        ctx.signal.raise_if_aborted()

    driver = BrokenSlots(shop.driver, "renew")
    job_id = shop.enqueue(long)
    began = time.monotonic()
    shop.running(driver=driver, visibility="3s", renew_every="100ms")
    row = shop.until_state(job_id, "dead")
    assert row.last_error_code == "X_JOB_SLOT_LOST"
    assert waited[0] >= 3
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

    @job("capped", tenant="none", concurrency=1, retry=Retry(attempts=100))
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


@pytest.mark.parametrize("error", [RuntimeError("no services today"), SystemExit(3)], ids=repr)
def test_a_context_that_raises_gives_the_slot_back(shop: Shop, error: BaseException) -> None:
    """S-290, S-282: all that was acquired, and the row too; the claim loop goes on."""
    broken = threading.Event()
    broken.set()

    def context() -> None:
        if broken.is_set():
            raise error

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
    ttl = max(1.0 - (time.monotonic() - began), 0.001)
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
