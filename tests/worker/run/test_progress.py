"""Progress of a run: the last value wins, is written at most once a second, and at the run's end in its settle."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from rowsweep.errors import DriverUnavailable, InvalidOption
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.steps.progress import MAX_MESSAGE, Progress
from rowsweep.testing.clock import FakeClock
from tests.worker.shop import BrokenDriver, Shop, logged, until


class Script:
    """A body that does one thing after another, each when its test says so."""

    def __init__(self) -> None:
        self._next = threading.Semaphore(0)
        self._did = threading.Semaphore(0)
        self._acts: list[Callable[[Ctx], Any]] = []
        self.ended = threading.Event()

    def __call__(self, ctx: Ctx) -> None:
        while True:
            assert self._next.acquire(timeout=10)
            if not self._acts:
                return
            try:
                self._acts.pop(0)(ctx)
            finally:
                self._did.release()

    def do(self, act: Callable[[Ctx], Any]) -> None:
        """Have the body do something, and wait until it has."""
        self._acts.append(act)
        self._next.release()
        assert self._did.acquire(timeout=10)

    def end(self) -> None:
        """Let the body return."""
        self._next.release()


def value(current: float, total: float | None = None, message: str | None = None) -> dict[str, Any]:
    """Answer what a row keeps of a progress."""
    return {"current": current, "total": total, "message": message}


def test_progress_is_seen_while_the_run_goes_on(shop: Shop) -> None:
    """S-408, S-409, D-18: the first value at once, a later one without another call."""
    script = Script()
    act = job("act", script, tenant="none")
    job_id = shop.enqueue(act)
    shop.running(progress_every="100ms")
    script.do(lambda ctx: ctx.progress(1, 4, "one"))
    until(lambda: shop.job(job_id).progress == value(1, 4, "one"))
    script.do(lambda ctx: ctx.progress(2, 4))
    script.do(lambda ctx: ctx.progress(3, 4))
    until(lambda: shop.job(job_id).progress == value(3, 4))
    assert shop.job(job_id).state == "running"
    script.end()
    assert shop.until_state(job_id, "done").progress == value(3, 4)


def test_a_thousand_reports_in_a_moment_are_two_writes(shop: Shop) -> None:
    """S-408, D-15: one at once, the rest throttled; the last rides in the settling statement."""
    driver = BrokenDriver(shop.driver)

    @job(tenant="none")
    def count(ctx: Ctx) -> None:
        for at in range(1_000):
            ctx.progress(at, 1_000)

    job_id = shop.enqueue(count)
    shop.running(driver=driver, progress_every="1h")
    assert shop.until_state(job_id, "done").progress == value(999, 1_000)
    assert len(driver.calls("record_progress")) <= 1
    ((settlements,),) = driver.calls("settle")
    assert settlements[0].progress == value(999, 1_000)


def test_what_is_stored_already_does_not_ride_again(shop: Shop) -> None:
    """S-408."""
    driver, script = BrokenDriver(shop.driver), Script()
    act = job("act", script, tenant="none")
    job_id = shop.enqueue(act)
    shop.running(driver=driver)
    script.do(lambda ctx: ctx.progress(1))
    until(lambda: shop.job(job_id).progress == value(1))
    script.end()
    assert shop.until_state(job_id, "done").progress == value(1)
    ((settlements,),) = driver.calls("settle")
    assert settlements[0].progress in (None, value(1))


@pytest.mark.parametrize("how", ["retried", "suspended", "dead"])
def test_progress_is_flushed_however_the_run_ends(shop: Shop, how: str) -> None:
    """S-408, N-037: before every settle."""

    @job("act", tenant="none", retry=Retry(attempts=1 if how == "dead" else 5, base="2m"))
    def act(ctx: Ctx) -> None:
        ctx.progress(1)
        ctx.progress(2, message="the last")
        if how == "suspended":
            ctx.step.sleep("long", "1h")
        raise ValueError("no")

    job_id = shop.enqueue(act)
    worker = shop.running(progress_every="1h")
    until(lambda: sum(worker.stats.outcomes.values()) == 1)
    assert shop.job(job_id).progress == value(2, message="the last")


def test_a_reporter_belongs_to_one_execution(shop: Shop) -> None:
    """S-410: the next attempt finds the value on the row and says its own."""
    contexts: list[Ctx] = []

    @job("act", tenant="none", retry=Retry(attempts=2, base="0s"))
    def act(ctx: Ctx) -> None:
        contexts.append(ctx)
        if ctx.attempt == 1:
            ctx.progress(7)
            raise ValueError("again")
        with pytest.raises(BaseException):  # noqa: B017, PT011 - that execution is over, and says so
            contexts[0].progress(8)

    job_id = shop.enqueue(act)
    shop.running()
    assert shop.until_state(job_id, "done").progress == value(7)


def test_progress_of_a_claim_that_was_taken_is_refused_and_ends_the_run(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """S-409, S-119: fenced on the claim; the run hears of it long before its next renewal."""
    caplog.set_level(logging.INFO, "rowsweep")
    script, aborted = Script(), threading.Event()
    act = job("act", script, tenant="none")
    job_id = shop.enqueue(act)
    shop.running()
    script.do(lambda ctx: ctx.signal.on_abort(aborted.set))
    shop.steal(job_id)
    script.do(lambda ctx: ctx.progress(1))
    assert aborted.wait(5)
    assert shop.job(job_id).progress is None
    until(lambda: bool(logged(caplog.records, "jobs.lease.lost")))
    (lost,) = logged(caplog.records, "jobs.lease.lost")
    assert "progress" in lost["cause"]
    script.end()


def test_a_write_that_fails_is_tried_again_and_fails_no_run(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """S-408, N-024: said once while it lasts; nothing is lost."""
    caplog.set_level(logging.INFO, "rowsweep")
    driver, script = BrokenDriver(shop.driver, "record_progress"), Script()
    act = job("act", script, tenant="none")
    job_id = shop.enqueue(act)
    shop.running(driver=driver, progress_every="20ms")
    script.do(lambda ctx: ctx.progress(1))
    until(lambda: len(driver.calls("record_progress")) >= 3)
    failures = logged(caplog.records, "jobs.worker.tick-failed")
    assert [failure["code"] for failure in failures] == [DriverUnavailable.code]
    driver.broken.clear()
    until(lambda: shop.job(job_id).progress == value(1))
    script.end()
    shop.until_state(job_id, "done")


def test_what_could_not_be_written_rides_in_the_settle(shop: Shop) -> None:
    """S-408: a value that was sent is not thereby stored."""
    driver = BrokenDriver(shop.driver, "record_progress")

    @job("act", tenant="none")
    def act(ctx: Ctx) -> None:
        ctx.progress(1)
        until(lambda: bool(driver.calls("record_progress")))

    job_id = shop.enqueue(act)
    shop.running(driver=driver)
    assert shop.until_state(job_id, "done").progress == value(1)


def test_a_body_without_progress_costs_no_statement(shop: Shop) -> None:
    """S-384."""
    driver = BrokenDriver(shop.driver)

    @job("act", tenant="none")
    def act(ctx: Ctx) -> None: ...

    job_id = shop.enqueue(act)
    shop.running(driver=driver)
    assert shop.until_state(job_id, "done").progress is None
    assert driver.calls("record_progress") == []


def reporter(clock: FakeClock, wanted: list[None]) -> Progress:
    """Make a reporter that notes when it wants to be written."""
    return Progress(clock, every_seconds=1.0, wanted=lambda: wanted.append(None))


def test_a_value_is_due_at_once_and_the_next_one_a_second_later() -> None:
    """S-408, D-15."""
    clock, wanted = FakeClock(), list[None]()
    progress = reporter(clock, wanted)
    assert (progress.due_in(), progress.left()) == (None, None)
    progress.report(1)
    progress.report(2)
    assert (len(wanted), progress.due_in()) == (1, 0.0)
    number, first = progress.take()
    progress.report(3)
    progress.written(number, stored=True)
    assert (first, progress.due_in(), len(wanted)) == (value(2), 1.0, 2)
    clock.advance(timedelta(seconds=1))
    assert progress.due_in() == 0.0
    assert progress.left() == value(3)
    progress.written(progress.take()[0], stored=False)
    assert (progress.due_in(), progress.left()) == (1.0, value(3))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ((1, 2.5), value(1, 2.5)),
        ((3.0, 7), value(3, 7)),
        ((float("nan"), float("inf")), value("NaN", "Infinity")),  # type: ignore[arg-type]
        ((0, None, "a\x00\ud800b"), value(0, None, "a\\x00\\ud800b")),
        ((0, None, "postgresql://me:secret@db/x"), value(0, None, "postgresql://me:***@db/x")),
    ],
)
def test_what_jsonb_cannot_hold_is_replaced(given: Any, kept: Any) -> None:
    """N-012, D-18: never raised; no password is kept."""
    progress = reporter(FakeClock(), [])
    progress.report(*given)
    left: Any = progress.left()
    if "secret" in str(given):
        assert "secret" not in left["message"]
    else:
        assert left == kept


def test_a_long_message_is_cut() -> None:
    """D-18."""
    progress = reporter(FakeClock(), [])
    progress.report(1, None, "x" * 2_000)
    left: Any = progress.left()
    assert len(left["message"]) == MAX_MESSAGE


@pytest.mark.parametrize("given", [(-1,), (1, -2), ("1",), (True,), (1, "2"), (None,), (1, None, 7)], ids=str)
def test_what_is_no_amount_or_no_text_is_refused(given: Any) -> None:
    """D-18, S-353, D-35."""
    with pytest.raises(InvalidOption):
        reporter(FakeClock(), []).report(*given)
