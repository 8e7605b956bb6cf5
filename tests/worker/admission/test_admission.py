"""Admission: caps that hold across workers, what waits, and what is refused."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import Any

import pytest

from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.concurrency import Keyed
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from tests.worker.admission.holders import holders, same
from tests.worker.shop import Shop, logged, until


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
        assert go.wait(60)
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
        assert go.wait(60)

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


@pytest.mark.slow
def test_rows_that_wait_for_a_full_cap_are_not_claimed_and_shed_over_and_over(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """N-021: at most once a second for a worker that does not hold it, never for the one that does."""
    caplog.set_level(logging.INFO, "rowsweep")
    go = threading.Event()

    @job("slow", tenant="none", input=int, concurrency=1)
    def slow(ctx: Ctx, value: int) -> None:
        assert go.wait(60)

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
    seconds = time.monotonic() - began
    sheds = logged(caplog.records, "jobs.worker.shed")
    assert [fields for fields in sheds if fields["worker_id"] == holder.id] == []
    assert 1 <= len([fields for fields in sheds if fields["worker_id"] == other.id]) <= 2 * (seconds + 1)
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
        assert go.wait(60)

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
        assert go.wait(60)

    @job("patient", tenant="none", input=int, concurrency=Keyed(same))
    def patient(ctx: Ctx, value: int) -> None:
        assert go.wait(60)

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


def test_a_sweep_s_runs_over_one_input_wait_for_each_other(shop: Shop) -> None:
    """N-073: by the key its input gives it, though both are on the queue."""
    import rowsweep as rs
    from rowsweep.jobs.request import EnqueueOptions

    sweep = rs.backfill("totals", rows=rs.Rows("orders"), set={"n": "1"})
    requests = [sweep.request(None, EnqueueOptions()) for _ in range(2)]
    first, second = (result.id for result in shop.driver.stores().jobs.enqueue(requests))
    gauge, go = Gauge(), threading.Event()

    def body(ctx: Any) -> None:
        assert go.wait(60)
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
