"""A worker whose database goes away and comes back."""

from __future__ import annotations

import logging
import threading
import time

import psycopg
import pytest

from rowsweep.embedded import EmbeddedServer
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.postgres.install import install
from tests.worker.shop import PostgresHands, Shop, logged, until
from tests.worker.world import opened


@pytest.mark.slow
def test_a_worker_survives_its_server(private_server: EmbeddedServer, caplog: pytest.LogCaptureFixture) -> None:
    """N-024, S-281, S-323, N-036: a run ends while the server is away and still counts; claiming goes on by itself."""
    caplog.set_level(logging.INFO, "rowsweep")
    install(private_server.dsn)
    driver = PostgresDriver(private_server.dsn)
    with psycopg.connect(private_server.dsn, autocommit=True) as connection:
        shop = Shop("postgres", driver, PostgresHands(connection))
    for _ in opened(shop):
        _outlive(shop, private_server, caplog)
    driver.close()


def _outlive(shop: Shop, server: EmbeddedServer, caplog: pytest.LogCaptureFixture) -> None:
    started, go = threading.Event(), threading.Event()

    @job("long", tenant="none")
    def long(ctx: Ctx) -> str:
        started.set()
        assert go.wait(60)
        return "kept"

    job_id = shop.enqueue(long)
    worker = shop.running(visibility="40s", renew_every="500ms")
    assert started.wait(60)
    server.stop()
    until(lambda: bool(logged(caplog.records, "jobs.heartbeat.failed")))
    until(lambda: bool(logged(caplog.records, "jobs.worker.tick-failed")))
    go.set()
    server.restart()
    back = time.monotonic()
    assert shop.until_state(job_id, "done").result == "kept"
    assert shop.job(job_id).claims == 1
    shop.until_state(shop.enqueue(long), "done")
    assert time.monotonic() - back < 20
    assert worker.state == "running"
    assert not logged(caplog.records, "jobs.lease.lost")
