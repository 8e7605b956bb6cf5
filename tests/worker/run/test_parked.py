"""Runs that are parked: what they cost while nothing happens, and how soon they go on when something does."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.testing.clock import FakeClock
from tests.statements import note_statements
from tests.worker.shop import DeafDriver, Shop, until
from tests.worker.test_claims import FastForward

RUNS = 10_000
PARKED = """
with runs as (
  insert into x_jobs (id, name, queue, state, input, idempotency_key, run_id, max_attempts, claims, run_at)
  select gen_random_uuid(), 'order', 'default', 'suspended', 'null', n::text, gen_random_uuid(), 5, 1,
         now() + interval '1 day'
  from generate_series(1, %s) n
  returning run_id, idempotency_key as key
)
insert into x_job_steps (run_id, name, kind, status, output, started_at, wake_at, event, correlation_key)
select run_id, 'payment', case when key::integer %% 2 = 0 then 'event' else 'sleep' end, 'waiting',
       case when key::integer %% 2 = 0 then jsonb_build_object('snapshot', pg_current_snapshot()::text) end,
       now(), now() + interval '1 day',
       case when key::integer %% 2 = 0 then 'paid' end, case when key::integer %% 2 = 0 then key end
from runs
"""


@pytest.fixture
def parked(postgres: Shop, queue_connection: psycopg.Connection[Any]) -> Iterator[Shop]:
    """Ten thousand parked runs, half of them asleep and half of them waiting for an event of their own."""

    @job("order", tenant="none")
    def order(ctx: Ctx) -> Any:
        event = ctx.step.wait_for_event("payment", "paid", "none")
        return None if event is None else event.payload

    queue_connection.execute(PARKED, [RUNS])
    queue_connection.execute("analyze x_jobs; analyze x_job_steps")
    yield postgres
    queue_connection.execute("delete from x_jobs; delete from x_job_steps")


def test_ten_thousand_parked_runs_cost_an_idle_worker_no_statement(
    parked: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-166, S-385, N-048: the polls for their events ride on its looks, one statement for all of them."""
    clock = FakeClock()
    counted: list[tuple[float, Any]] = []

    def count(query: str, values: Any) -> None:
        if threading.current_thread().name.startswith("rowsweep-"):
            counted.append((clock.monotonic(), values))

    note_statements(monkeypatch, count)
    timers = FastForward(clock, 660.0)
    driver = DeafDriver(parked.driver)
    parked.running(driver=driver, clock=clock, timers=timers, poll="2s", poll_floor="500ms")
    assert timers.over.wait(60)
    assert not driver.asked
    idle = [values for at, values in counted if 60 <= at < 660]
    assert len(idle) <= 300
    assert sum(bool(values and values.get("poll")) for values in idle) in range(18, 22)


def test_a_poll_over_ten_thousand_waits_is_one_quick_statement(parked: Shop) -> None:
    """N-048: and it makes due what has come, and nothing else."""
    workers = parked.driver.control().workers
    assert workers is not None
    took = []
    for _ in range(5):
        begun = time.monotonic()
        look = workers.look(queues=["default"], names=["order"], announce=None, poll=["order"])
        took.append(time.monotonic() - begun)
        assert look.due_queues == []
    assert min(took) < 1.0


def test_a_publication_wakes_one_of_ten_thousand(parked: Shop, queue_connection: psycopg.Connection[Any]) -> None:
    """N-048: in its own statement, whose cost is that of the runs it wakes."""
    assert isinstance(parked.driver, PostgresDriver)
    bus = parked.driver.event_bus()
    bus.publish("paid", key="none")
    took = []
    for key in "468":
        begun = time.monotonic()
        bus.publish("paid", key=key)
        took.append(time.monotonic() - begun)
    assert min(took) < 0.5
    due = queue_connection.execute("select idempotency_key from x_jobs where run_at <= now() order by 1").fetchall()
    assert due == [(key,) for key in "468"]


def test_a_run_goes_on_when_its_event_is_published_not_at_the_next_poll(
    postgres: Shop, queue_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """N-048, D-25: published by another session, in a transaction; the worker would look again in an hour."""

    @job("order", tenant="none", event_poll="1h")
    def order(ctx: Ctx) -> Any:
        event = ctx.step.wait_for_event("payment", "paid", str(ctx.job_id))
        return None if event is None else event.payload

    caplog.set_level(logging.INFO, logger="rowsweep")
    hour: dict[str, Any] = {"poll": "1h", "poll_with_wake": "1h", "poll_floor": "1h", "announce_every": "1h"}
    worker = postgres.running(**hour)
    until(lambda: worker._crew is not None and worker._crew.claims.is_awake)
    elsewhere = PostgresDriver(queue_dsn)
    took = []
    for number in range(10):
        job_id = postgres.enqueue(order)
        postgres.until_state(job_id, "suspended")
        with elsewhere.transaction() as tx:
            elsewhere.event_bus().publish("paid", number, key=str(job_id), tx=tx.connection)
        committed = time.monotonic()
        assert postgres.until_state(job_id, "done").result == number
        took.append(time.monotonic() - committed)
    elsewhere.close()
    assert sorted(took)[len(took) // 2] < 1.0
