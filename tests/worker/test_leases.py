"""Keeping leases, and losing them, over both drivers."""

from __future__ import annotations

import logging
import threading
import time
from datetime import datetime, timedelta
from uuid import UUID

import psycopg
import pytest

from rowsweep.errors import Interrupted
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.queue.records import ClaimOptions
from tests.worker.shop import BrokenDriver, Shop, logged, until


class Gate:
    """A body's meeting point with its test."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.go = threading.Event()
        self.reasons: list[str | None] = []

    def pass_through(self) -> None:
        self.started.set()
        assert self.go.wait(60)

    def wait_for_abort(self, ctx: Ctx) -> None:
        self.started.set()
        assert ctx.signal.wait(60)
        reason = ctx.signal.reason
        self.reasons.append(None if reason is None else reason.code)


def test_a_run_longer_than_its_visibility_keeps_its_claim(shop: Shop) -> None:
    """S-319, S-324, S-328: renewed while it runs, so nobody else is given it."""
    gate = Gate()

    @job(tenant="none")
    def long(ctx: Ctx) -> None:
        gate.pass_through()

    job_id = shop.enqueue(long)
    shop.running(visibility="3s", renew_every="200ms")
    shop.running(visibility="3s", renew_every="200ms")
    assert gate.started.wait(60)
    claimed = visible_at(shop, job_id)
    until(lambda: visible_at(shop, job_id) - claimed > timedelta(seconds=1))
    gate.go.set()
    assert shop.until_state(job_id, "done").claims == 1


def visible_at(shop: Shop, job_id: UUID) -> datetime:
    """Answer until when a running job's claim stands."""
    found = shop.job(job_id).visible_at
    assert found is not None
    return found


def test_a_stolen_claim_aborts_its_run_and_its_result_counts_for_nothing(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """S-119, S-323, S-325, S-331, N-120: one report, outcome interrupted, no settle sent."""
    caplog.set_level(logging.INFO, "rowsweep")
    gate = Gate()

    @job(tenant="none")
    def work(ctx: Ctx) -> str:
        gate.wait_for_abort(ctx)
        return "mine"

    job_id = shop.enqueue(work)
    worker = shop.running(visibility="6s", renew_every="200ms")
    assert gate.started.wait(60)
    thief = shop.steal(job_id)
    until(lambda: worker.stats.outcomes == {"interrupted": 1})
    row = shop.job(job_id)
    assert (row.state, row.claimed_by, row.claims, row.result) == ("running", "thief", thief.claim, None)
    assert gate.reasons == ["X_JOB_LEASE_LOST"]
    (lost,) = logged(caplog.records, "jobs.lease.lost")
    assert (lost["job_id"], lost["claim"], lost["code"]) == (str(job_id), thief.claim - 1, "X_JOB_LEASE_LOST")
    assert not logged(caplog.records, "jobs.settle.unowned")
    assert logged(caplog.records, "jobs.run.finished")[0]["outcome"] == "interrupted"


def test_a_run_that_ended_before_it_noticed_settles_into_nothing(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-104, S-108, S-112, N-120: the miss is logged, and the replacement's row stands."""
    caplog.set_level(logging.INFO, "rowsweep")
    gate = Gate()

    @job(tenant="none")
    def work(ctx: Ctx) -> str:
        gate.pass_through()
        return "late"

    job_id = shop.enqueue(work)
    worker = shop.running()
    assert gate.started.wait(60)
    shop.steal(job_id)
    gate.go.set()
    until(lambda: worker.stats.outcomes == {"interrupted": 1})
    assert shop.job(job_id).claimed_by == "thief"
    (unowned,) = logged(caplog.records, "jobs.settle.unowned")
    assert (unowned["job_id"], unowned["verdict"]) == (str(job_id), "Done")
    assert worker.stats.processed == 0


def test_a_cancelled_job_is_noticed_at_the_next_renewal(shop: Shop) -> None:
    """S-119."""
    gate = Gate()

    @job(tenant="none")
    def work(ctx: Ctx) -> None:
        gate.wait_for_abort(ctx)
        ctx.signal.raise_if_aborted()

    job_id = shop.enqueue(work)
    worker = shop.running(visibility="3s", renew_every="200ms")
    assert gate.started.wait(60)
    steering = shop.driver.stores().steering
    assert steering is not None
    assert steering.cancel(job_id) is not None
    until(lambda: worker.stats.outcomes == {"interrupted": 1})
    assert shop.job(job_id).state == "cancelled"


def test_another_worker_takes_what_a_dead_one_left(shop: Shop) -> None:
    """S-092, N-031: a lapsed row is found by the look and run again, its attempt counted."""

    @job(tenant="none")
    def work(ctx: Ctx) -> int:
        return ctx.attempt

    job_id = shop.enqueue(work)
    shop.driver.stores().jobs.claim(ClaimOptions(queues=["default"], names=["work"], worker_id="dead", limit=1))
    shop.running()
    shop.lapse(job_id)
    done = shop.until_state(job_id, "done")
    assert (done.result, done.claims) == (2, 2)


def test_a_job_that_lapses_on_its_last_attempt_is_buried_and_reported(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """S-093, S-096, S-098, S-138: never handed out again."""
    caplog.set_level(logging.INFO, "rowsweep")
    runs: list[int] = []

    @job("kept", tenant="none", retry=Retry(attempts=1))
    def kept(ctx: Ctx) -> None:
        runs.append(1)

    @job("dropped", tenant="none", retry=Retry(attempts=1, dead_letter=False))
    def dropped(ctx: Ctx) -> None:
        runs.append(1)

    ids = [shop.enqueue(kept), shop.enqueue(dropped)]
    names = ["kept", "dropped"]
    shop.driver.stores().jobs.claim(ClaimOptions(queues=["default"], names=names, worker_id="dead", limit=2))
    for job_id in ids:
        shop.lapse(job_id)
    shop.running()
    assert shop.until_state(ids[0], "dead").stop_reason == "lapsed"
    assert shop.until_state(ids[1], "failed").stop_reason == "lapsed"
    until(lambda: len(logged(caplog.records, "jobs.claim.exhausted")) == 2)
    assert {fields["state"] for fields in logged(caplog.records, "jobs.claim.exhausted")} == {"dead", "failed"}
    assert runs == []


def test_failed_renewals_only_warn_until_a_whole_window_has_passed(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """S-321, S-323, N-024, N-038: then the run is aborted by this process's own clock."""
    caplog.set_level(logging.INFO, "rowsweep")
    gate = Gate()

    @job(tenant="none", retry=Retry(attempts=1))
    def work(ctx: Ctx) -> None:
        gate.wait_for_abort(ctx)
        raise Interrupted(ctx.signal.reason)

    driver = BrokenDriver(shop.driver, "renew")
    shop.enqueue(work)
    begun = time.monotonic()
    worker = shop.running(driver=driver, visibility="2s")
    assert gate.started.wait(60)
    until(lambda: worker.stats.outcomes == {"interrupted": 1})
    assert time.monotonic() - begun >= 2
    assert logged(caplog.records, "jobs.heartbeat.failed")
    (lost,) = logged(caplog.records, "jobs.lease.lost")
    assert lost["held_seconds"] >= 2
    assert gate.reasons == ["X_JOB_LEASE_LOST"]


def test_renewals_that_come_back_keep_the_claim(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-323: a failed renewal alone loses nothing."""
    caplog.set_level(logging.INFO, "rowsweep")
    gate = Gate()

    @job(tenant="none")
    def work(ctx: Ctx) -> None:
        gate.pass_through()

    driver = BrokenDriver(shop.driver, "renew")
    job_id = shop.enqueue(work)
    shop.running(driver=driver, visibility="3s", renew_every="200ms")
    assert gate.started.wait(60)
    until(lambda: bool(logged(caplog.records, "jobs.heartbeat.failed")))
    driver.broken.clear()
    asked = len(driver.calls("renew"))
    until(lambda: len(driver.calls("renew")) > asked + 1)
    gate.go.set()
    shop.until_state(job_id, "done")
    assert not logged(caplog.records, "jobs.lease.lost")


def test_all_claims_are_renewed_by_one_statement(memory: Shop) -> None:
    """N-038: one renewal a round, however many runs there are."""
    gates = threading.Barrier(9)
    go = threading.Event()

    @job(tenant="none", input=int)
    def work(ctx: Ctx, number: int) -> None:
        gates.wait(10)
        assert go.wait(60)

    driver = BrokenDriver(memory.driver)
    work.enqueue_many(list(range(8)))
    worker = memory.running(driver=driver, visibility="6s", renew_every="300ms")
    gates.wait(10)
    until(lambda: len(driver.calls("renew")) >= 3)
    go.set()
    until(lambda: worker.stats.processed == 8)
    assert [len(claims) for (claims,) in driver.calls("renew")[:3]] == [8, 8, 8]


def test_a_locked_row_is_neither_lost_nor_renewed_and_is_asked_again(
    postgres: Shop, queue_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """N-038, S-105: a lock held for a while delays the renewal, and the settle waits without blocking others."""
    caplog.set_level(logging.INFO, "rowsweep")
    gate = Gate()

    @job(tenant="none")
    def work(ctx: Ctx) -> None:
        gate.pass_through()

    @job(tenant="none")
    def quick(ctx: Ctx) -> None: ...

    job_id = postgres.enqueue(work)
    worker = postgres.running(visibility="3s", renew_every="100ms")
    assert gate.started.wait(60)
    with psycopg.connect(queue_dsn) as holder:
        holder.execute("select 1 from x_jobs where id = %s for update", [job_id])
        held = visible_at(postgres, job_id)
        gate.go.set()
        postgres.until_state(postgres.enqueue(quick), "done")
        assert visible_at(postgres, job_id) == held
        assert worker.stats.in_flight == 1
        holder.rollback()
    postgres.until_state(job_id, "done")
    until(lambda: worker.stats.in_flight == 0)
    assert not logged(caplog.records, "jobs.lease.lost")
