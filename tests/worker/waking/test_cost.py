"""What a wake costs while nothing happens, and what polling costs without one."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rowsweep.clock import SystemClock
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.queue.waking import wake as module
from rowsweep.worker.claiming.pace import Pace
from rowsweep.worker.options import WorkerOptions
from tests.statements import note_statements
from tests.worker.shop import BrokenDriver, DeafDriver, Shop, until
from tests.worker.test_claims import FastForward
from tests.worker.waking.ears import is_awake


def test_an_idle_worker_with_a_wake_sends_at_most_six_statements_a_minute(
    postgres: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-385, N-043: the announcement, the poll for events and the proof all ride on the look."""
    from rowsweep.testing.clock import FakeClock

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    clock = FakeClock()
    # The session keeps real time; here its minute passes as the loop's does.
    monkeypatch.setattr(module, "real_monotonic", clock.monotonic)
    counted: list[tuple[float, str]] = []

    def count(query: str, _values: Any) -> None:
        if threading.current_thread().name.startswith("rowsweep-"):
            counted.append((clock.monotonic(), query))

    note_statements(monkeypatch, count)
    timers = FastForward(clock, 660.0)
    driver = BrokenDriver(postgres.driver)
    worker = postgres.worker(
        driver=driver, clock=clock, timers=timers, queues=["default", "mail"], poll="2s", poll_floor="500ms",
        poll_with_wake="30s",
    )  # fmt: skip
    wait = timers.wait

    def asleep_until_proven(condition: threading.Condition, seconds: float | None) -> None:
        """Pass no time while a proof is under way: the session answers in real time."""
        if threading.current_thread().name == "rowsweep-claims":
            assert worker._crew is not None
            session = worker._crew.claims._wake._wake
            until(lambda: session is None or (session.is_proven and session._awaited is None))
        wait(condition, seconds)

    monkeypatch.setattr(timers, "wait", asleep_until_proven)
    worker.start()
    assert timers.over.wait(60)
    assert is_awake(worker)
    assert not driver.asked
    idle = [query for at, query in counted if 60 <= at < 660]
    assert 30 <= len(idle) <= 60
    assert all("x_job_workers" in query for query in idle)


def test_the_wait_doubles_to_a_ceiling_that_a_proven_wake_raises() -> None:
    """N-043, D-15: 0.5 s to 2 s, and to 30 s with a proven wake."""
    awake_now = False
    pace = Pace(WorkerOptions(), SystemClock(), lambda: awake_now)
    assert [pace.next_in(found=False) for _ in range(5)] == [0.5, 1.0, 2.0, 2.0, 2.0]
    awake_now = True
    assert [pace.next_in(found=False) for _ in range(6)] == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert pace.next_in(12.0, None, found=False) == 12.0
    awake_now = False
    assert pace.next_in(found=False) == 2.0
    assert pace.next_in(found=True) == 0.5
    assert pace.next_in(None, found=False) == 0.5
    pace.look_within(0.2)
    assert pace.next_in(found=False) <= 0.2


def test_without_a_wake_polling_is_what_it_would_be(memory: Shop) -> None:
    """S-382."""

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    worker = memory.running(driver=DeafDriver(memory.driver), poll_with_wake="60s")
    memory.until_state(memory.enqueue(work), "done")
    assert not is_awake(worker)
