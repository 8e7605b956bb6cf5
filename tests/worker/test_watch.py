"""What the ledger wants of a sweep in flight reaches its run."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID

from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.handle import JobHandle, JobOptions
from rowsweep.jobs.origin import origin_of
from rowsweep.jobs.registry import register
from rowsweep.jobs.values.inputs import InputType
from rowsweep.queue.stores.ledger import Asked, LedgerStore, NewBackfill
from rowsweep.steps.context import RunCtx
from tests.worker.shop import Shop, until


def sweep(body: Any) -> JobHandle[None, Any]:
    """Declare a job whose runs have a row in the ledger."""
    options = JobOptions(
        tenant="none",
        input=InputType(None, job="totals"),
        queue="default",
        priority=0,
        key=None,
        retry=Retry(),
        kind="backfill",
    )
    handle: JobHandle[None, Any] = JobHandle("totals", body, options, origin=origin_of(body), named=True)
    register(handle)
    return handle


def ledger_of(shop: Shop) -> LedgerStore:
    """Answer the ledger, which both drivers have."""
    ledger = shop.driver.stores().ledger
    assert ledger is not None
    return ledger


def launched(shop: Shop, handle: JobHandle[None, Any]) -> tuple[UUID, UUID]:
    """Enqueue a sweep with its ledger row; answer the ids of job and run."""
    enqueued = handle.enqueue()
    ledger_of(shop).start(
        NewBackfill(run_id=enqueued.run_id, name="totals", kind="backfill", checksum="c", environment="test")
    )
    return enqueued.id, enqueued.run_id


def test_a_cancelled_sweep_is_aborted_within_about_a_second(shop: Shop) -> None:
    """N-079, N-081, N-120: X_ABORTED, and its settle is not sent."""
    started = threading.Event()
    codes: list[str | None] = []

    def body(ctx: Ctx) -> None:
        started.set()
        assert ctx.signal.wait(60)
        codes.append(getattr(ctx.signal.reason, "code", None))
        ctx.signal.raise_if_aborted()

    job_id, run_id = launched(shop, sweep(body))
    worker = shop.running()
    assert started.wait(60)
    ledger_of(shop).steer(run_id, "cancel")
    until(lambda: worker.stats.outcomes == {"interrupted": 1})
    assert codes == ["X_ABORTED"]
    assert shop.job(job_id).state == "cancelled"
    row = ledger_of(shop).get(run_id)
    assert row is not None
    assert row.status == "cancelled"


def test_a_pause_is_read_from_memory_and_parks_the_run(shop: Shop) -> None:
    """N-079, N-080: nothing is aborted; the sweep asks, and the ledger row is paused with the settle."""
    started = threading.Event()

    def body(ctx: Ctx) -> None:
        assert isinstance(ctx, RunCtx)
        started.set()
        until(lambda: ctx.asked() == Asked(wanted="pause"))
        assert not ctx.signal.aborted
        ctx.suspend("pause", 3600.0)

    job_id, run_id = launched(shop, sweep(body))
    worker = shop.running()
    assert started.wait(60)
    ledger_of(shop).steer(run_id, "pause")
    until(lambda: worker.stats.outcomes == {"suspended": 1})
    assert (shop.job(job_id).state, shop.job(job_id).attempt) == ("suspended", 0)
    row = ledger_of(shop).get(run_id)
    assert row is not None
    assert row.status == "paused"


def test_a_failed_sweep_ends_its_ledger_row_in_the_same_settle(shop: Shop) -> None:
    """S-131: the row's error is the job's."""

    def body(ctx: Ctx) -> None:
        error = ValueError("broken")
        error.retry = "terminal"  # type: ignore[attr-defined]
        raise error

    job_id, run_id = launched(shop, sweep(body))
    shop.running()
    shop.until_state(job_id, "dead")
    row = ledger_of(shop).get(run_id)
    assert row is not None
    assert row.status == "failed"
    assert (row.last_error or "").startswith("ValueError: broken")
