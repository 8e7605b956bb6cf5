"""The session that a wake listens over."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.queue.postgres.driver import PostgresDriver
from tests.worker.shop import PostgresHands, Shop, logged, until
from tests.worker.waking.ears import SLEEPY, awake, is_awake


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
