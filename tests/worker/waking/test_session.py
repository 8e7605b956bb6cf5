"""The session that a wake listens over."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest

from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.queue.postgres.driver import PostgresDriver
from tests.acceptance.wire import Wire
from tests.worker.shop import BrokenDriver, PostgresHands, Shop, logged, until
from tests.worker.waking.ears import SLEEPY, awake, is_awake, quick


def test_a_dropped_session_is_replaced(postgres: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """D-25: ended by the server under the worker."""
    caplog.set_level(logging.INFO, "rowsweep")

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    worker = awake(postgres, **{**SLEEPY, "poll": "2s", "poll_floor": "500ms"})
    assert isinstance(postgres.hands, PostgresHands)
    ended = postgres.hands.connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where query = 'select pg_notify($1, $2)'"
    ).fetchall()
    assert ended
    until(lambda: bool(logged(caplog.records, "jobs.wake.lost")))
    postgres.until_state(postgres.enqueue(work), "done")
    until(lambda: is_awake(worker))
    postgres.until_state(postgres.enqueue(work), "done")


class WiredDriver(BrokenDriver):
    """A driver whose sessions lead over a wire of the test's."""

    def __init__(self, driver: Any, wired: PostgresDriver) -> None:
        super().__init__(driver)
        self.listen = wired.listen


@pytest.mark.parametrize("looks", ["seldom", "often"])
def test_a_session_that_is_half_open_is_found_out_and_replaced(
    postgres: Shop, queue_dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, looks: str
) -> None:
    """D-25, S-381: nothing comes through and nothing ends it; by its own proof, or by one that a look has carried."""
    caplog.set_level(logging.INFO, "rowsweep")
    quick(monkeypatch)

    @job(tenant="none")
    def work(ctx: Ctx) -> None: ...

    wire = Wire(queue_dsn)
    given = SLEEPY if looks == "seldom" else {}
    worker = awake(postgres, driver=WiredDriver(postgres.driver, PostgresDriver(wire.dsn)), **given)
    wire.hush()
    until(lambda: bool(logged(caplog.records, "jobs.wake.lost")))
    until(lambda: len(logged(caplog.records, "jobs.wake.proven")) == 2)
    postgres.until_state(postgres.enqueue(work), "done")
    worker.stop()
    wire.close()


def test_behind_a_pooler_there_is_no_session(queue_dsn: str) -> None:
    """N-023."""
    driver = PostgresDriver(queue_dsn, pooler=True)
    assert driver.listen() is None


def test_a_session_hears_and_says_and_is_interrupted(postgres: Shop) -> None:
    """D-25: without a statement of its own while it waits."""
    source = postgres.driver.listen()
    assert source is not None
    other = postgres.driver.listen()
    assert other is not None
    source.say("default")
    assert source.hear(5) == other.hear(5) == ["default"]
    began = time.monotonic()
    threading.Timer(0.1, source.interrupt).start()
    assert source.hear(20) == []
    assert time.monotonic() - began < 10
    assert source.hear(0.05) == []
    source.close()
    other.close()
