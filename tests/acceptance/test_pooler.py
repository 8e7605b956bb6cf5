"""Behind PgBouncer in transaction mode: everything works without LISTEN and without prepared statements."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

import rowsweep as rs
from rowsweep.jobs.registry import reset_jobs
from tests.acceptance import bouncer
from tests.acceptance.harness import until
from tests.worker.shop import WatchedTimers

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.pgbouncer]


@pytest.fixture
def through(server_dsn: str, tmp_path: Path) -> Iterator[str]:
    """A DSN that leads through a pooler with fewer server connections than a worker has of its own."""
    with bouncer.running(server_dsn, tmp_path) as dsn:
        yield dsn


@pytest.fixture
def app(through: str, dsn: str, schema: str) -> Iterator[rs.App]:
    """An app connected through the pooler."""
    direct = rs.PostgresDriver(dsn)
    direct.install()
    direct.close()
    reset_jobs()
    connected = rs.connect(through, schema=schema, pooler=True, work=False, actor="test")
    yield connected
    connected.close()
    reset_jobs()


def state(app: rs.App, job_id: UUID) -> str:
    """Answer a job's state."""
    inspection = app.stores().inspection
    assert inspection is not None
    found = inspection.get(job_id)
    assert found is not None
    return found.state


def until_done(app: rs.App, ids: list[UUID]) -> None:
    """Wait for the jobs to be done."""
    until(lambda: all(state(app, job_id) == "done" for job_id in ids), lambda: [state(app, one) for one in ids])


def test_jobs_steps_and_caps_work_through_a_transaction_pooler(app: rs.App) -> None:
    """N-023: hundreds of statements a connection, spread over a few server connections that know none of them."""
    inside, most, lock = [0], [0], threading.Lock()

    @rs.job("capped", tenant="none", input=int, concurrency=(1, rs.Keyed(str)))
    def capped(ctx: rs.Ctx, number: int) -> int:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        with ctx.transaction() as tx:
            tx.execute("select 1")
        answer = ctx.step.run("double", lambda: number * 2)
        with lock:
            inside[0] -= 1
        return int(answer)

    @rs.job("plain", tenant="none", input=int)
    def plain(ctx: rs.Ctx, number: int) -> None:
        ctx.step.run("one", lambda: number)

    worker = app.worker(concurrency=6, poll="100ms", poll_floor="50ms")
    worker.start()
    many = [result.id for result in plain.enqueue_many(list(range(300)))]
    with rs.transaction():
        ids = [capped.enqueue(number).id for number in range(10)]
    with pytest.raises(KeyboardInterrupt), rs.transaction():  # noqa: PT012 - a transaction that the raise ends
        gone = plain.enqueue(1).id
        raise KeyboardInterrupt
    until_done(app, [*many, *ids])
    inspection = app.stores().inspection
    assert inspection is not None
    assert inspection.get(gone) is None
    assert most[0] == 1
    workers = app.stores().workers
    assert workers is not None
    assert [info.wake for info, _ in workers.live()] == [False]
    worker.stop()
    assert worker.stats.processed == 310


def test_it_polls_every_two_seconds(app: rs.App, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-023, S-382: what another process enqueues waits for the next look."""
    timers = WatchedTimers()
    monkeypatch.setattr("rowsweep.worker.worker.RealTimers", lambda: timers)

    @rs.job("plain", tenant="none")
    def plain(ctx: rs.Ctx) -> None: ...

    worker = app.worker()
    worker.start()
    timers.until_asleep(2)
    began = time.monotonic()
    until_done(app, [plain.enqueue().id])
    assert time.monotonic() - began < 10
    worker.stop()
    assert timers.longest_seconds == 2


def test_a_sweep_works_through_a_transaction_pooler(app: rs.App, connection: psycopg.Connection, schema: str) -> None:
    """N-023: its settings last for a transaction, and nothing of them stays on a server connection."""
    connection.execute("create table orders (id bigint primary key, price numeric, total numeric)")
    connection.execute("insert into orders select n, n, null from generate_series(1, 3000) n")
    sweep = rs.backfill("totals", rows=rs.Rows((schema, "orders")), set={"total": "price * 2"}, batch_rows=100)
    worker = app.worker(concurrency=2, poll="100ms", poll_floor="50ms")
    worker.start()
    assert sweep.launch().wait(timeout="60s")["rows"] == 3000
    worker.stop()
    (row,) = connection.execute("select count(*), sum(total - price * 2) from orders where total is not null")
    assert row == (3000, 0)


def test_nothing_stays_on_the_server_s_connections(
    app: rs.App, through: str, connection: psycopg.Connection, schema: str
) -> None:
    """N-023: no setting, advisory lock, prepared statement or temporary table; the next client finds them clean."""
    connection.execute("create table orders (id bigint primary key, total int); insert into orders values (1), (2)")

    @rs.backfill("totals", rows=rs.Rows((schema, "orders")))
    def totals(batch: rs.Batch) -> Any:
        return batch.frame.with_columns(total=batch.frame["id"])

    @rs.job("plain", tenant="none", input=int)
    def plain(ctx: rs.Ctx, number: int) -> None:
        with ctx.transaction() as tx:
            tx.execute("select 1")

    worker = app.worker(concurrency=4, poll="100ms", poll_floor="50ms")
    worker.start()
    until_done(app, [result.id for result in plain.enqueue_many(list(range(60)))])
    assert totals.launch().wait(timeout="60s")["written"] == 2
    worker.stop()
    asked = """select current_setting('statement_timeout'), current_setting('default_transaction_isolation'),
                      coalesce(current_setting('rowsweep.tenant', true), ''), current_setting('enable_seqscan'),
                      (select count(*) from pg_prepared_statements),
                      (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()),
                      (select count(*) from pg_listening_channels()),
                      (select count(*) from pg_class where relnamespace = pg_my_temp_schema()), pg_backend_pid()"""
    clients = [psycopg.connect(through, autocommit=True, prepare_threshold=None) for _ in range(bouncer.POOL)]
    rows: list[Any] = []
    for client in clients:  # each holds a server connection, so that all of them are asked
        client.execute("begin")
        rows.append(client.execute(asked).fetchone())
    for client in clients:
        client.close()
    assert len({row[-1] for row in rows}) == bouncer.POOL
    assert {row[:-1] for row in rows} == {("0", "read committed", "", "on", 0, 0, 0, 0)}


def test_an_enqueue_through_the_pooler_wakes_a_worker_that_is_connected_directly(
    app: rs.App, dsn: str, tmp_path: Path
) -> None:
    """N-023, D-25: the notification is sent by its commit, whatever stands between."""
    done = threading.Event()

    @rs.job("plain", tenant="none")
    def plain(ctx: rs.Ctx) -> None:
        done.set()

    from rowsweep.worker.worker import Worker

    driver, timers = rs.PostgresDriver(dsn), WatchedTimers()
    seldom: dict[str, Any] = {"poll": "60s", "poll_floor": "30s", "poll_with_wake": "60s", "announce_every": "60s"}
    worker = Worker(driver=driver, context=lambda: None, timers=timers, **seldom)
    worker.start()
    workers = driver.stores().workers
    assert workers is not None
    until(lambda: worker._crew is not None and worker._crew.claims.is_awake, "a proven wake")
    timers.until_asleep(10)
    plain.enqueue()
    assert done.wait(60)
    worker.stop()
    driver.close()
