"""Fenced transactions of a run on Postgres, and the cancel of what an aborted run is doing."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
import pytest

from rowsweep.errors import Aborted, Interrupted, LeaseLost
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.queue.bus import publish_event, use_event_bus
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.signals import RunSignal
from rowsweep.steps.cancel import cancel_on_abort
from tests.worker.shop import Shop, logged, until

NOW = Retry(attempts=4, base="0s", jitter=False)


def marks(connection: psycopg.Connection[Any]) -> list[str]:
    """Answer the application's rows."""
    return [mark for (mark,) in connection.execute("select mark from marks order by id")]


def test_a_transaction_commits_its_writes_its_steps_and_its_enqueues_together(
    postgres: Shop, queue_connection: psycopg.Connection[Any]
) -> None:
    """N-117, N-046, N-015: all of them, or after a crash none of them and then all once."""

    @job(tenant="none")
    def follower(ctx: Ctx) -> None: ...

    @job(tenant="none", retry=NOW)
    def work(ctx: Ctx) -> Any:
        with ctx.transaction() as tx:
            tx.execute("insert into marks (mark) values ('one')")
            ctx.step.run("noted", lambda: "yes", tx=tx)
            ctx.step.checkpoint("at").put(1, tx=tx)
            follower.enqueue(key="only")
            if ctx.attempt < 3:
                raise ConnectionError("crash")
        return ctx.step.checkpoint("at").get()

    job_id = postgres.enqueue(work)
    worker = postgres.running()
    assert postgres.until_state(job_id, "done").result == 1
    until(lambda: worker.stats.processed == 2)
    assert marks(queue_connection) == ["one"]
    assert set(postgres.steps(job_id)) == {"noted", "at"}


def test_a_transaction_carries_the_tenant_and_leaves_nothing_behind(postgres: Shop) -> None:
    """N-009, S-038: also `''` for nobody's."""
    ask = "select coalesce(current_setting('rowsweep.tenant', true), 'unset')"

    @job("theirs", tenant=lambda value: f"shop-{value}", input=int)
    def theirs(ctx: Ctx, number: int) -> Any:
        with ctx.transaction() as tx:
            inside = tx.execute(ask).fetchone()[0]
        return [inside]

    @job("nobodys", tenant="none")
    def nobodys(ctx: Ctx) -> Any:
        with ctx.transaction() as tx:
            return [tx.execute(ask).fetchone()[0]]

    one, other = postgres.enqueue(theirs, 5), postgres.enqueue(nobodys)
    postgres.running()
    assert postgres.until_state(one, "done").result == ["shop-5"]
    assert postgres.until_state(other, "done").result == [""]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_transaction_that_sql_has_ended_is_refused(postgres: Shop, end: str) -> None:
    """N-117: its fence would speak for nothing; not tried again, since what it wrote stands."""

    @job(tenant="none", retry=NOW)
    def work(ctx: Ctx) -> None:
        with ctx.transaction() as tx:
            tx.execute(end)
            tx.execute("select 1")

    job_id = postgres.enqueue(work)
    postgres.running()
    row = postgres.until_state(job_id, "dead")
    assert (row.last_error_code, row.attempt, row.stop_reason) == ("X_SWEEP_TRANSACTION_ENDED", 1, "terminal")


def test_a_transaction_of_a_lost_claim_rolls_back(
    postgres: Shop, queue_connection: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """N-117, N-120: LeaseLost at its end, nothing written, nothing settled."""
    raised: list[BaseException] = []

    @job(tenant="none")
    def work(ctx: Ctx) -> None:
        try:
            with ctx.transaction() as tx:
                tx.execute("insert into marks (mark) values ('stale')")
                postgres.steal(ctx.job_id)
        except LeaseLost as error:
            raised.append(error)

    job_id = postgres.enqueue(work)
    (execution,) = postgres.worker().tick()
    assert (execution.outcome, getattr(execution.error, "code", None)) == ("interrupted", "X_JOB_LEASE_LOST")
    assert len(raised) == 1
    assert len(logged(caplog.records, "jobs.lease.lost")) == 1
    assert marks(queue_connection) == []
    assert postgres.job(job_id).claimed_by == "thief"


def test_a_guard_fences_a_transaction_of_the_applications_own(
    postgres: Shop, queue_dsn: str, queue_connection: psycopg.Connection[Any]
) -> None:
    """N-117: it holds the row while it is open, and a lost claim is refused."""

    @job(tenant="none", input=bool)
    def work(ctx: Ctx, is_stolen: bool) -> None:
        with psycopg.connect(queue_dsn) as own:
            own.execute("insert into marks (mark) values (%s)", [str(is_stolen)])
            if is_stolen:
                postgres.steal(ctx.job_id)
            ctx.guard(own)
            with pytest.raises(psycopg.errors.LockNotAvailable):
                queue_connection.execute("select 1 from x_jobs where id = %s for update nowait", [ctx.job_id])

    held, stolen = postgres.enqueue(work, False), postgres.enqueue(work, True)
    executions = postgres.worker(concurrency=1).tick() + postgres.workers[0].tick()
    assert {execution.job_id: execution.outcome for execution in executions} == {
        held: "completed",
        stolen: "interrupted",
    }
    assert marks(queue_connection) == ["False"]


def test_a_memory_transaction_is_fenced_too(memory: Shop) -> None:
    """N-117: the same rules where there is no connection."""

    @job(tenant="none")
    def follower(ctx: Ctx) -> None: ...

    @job(tenant="none", input=bool)
    def work(ctx: Ctx, is_stolen: bool) -> None:
        with ctx.transaction() as tx:
            ctx.step.run("noted", lambda: 1, tx=tx)
            follower.enqueue(key=str(is_stolen))
            if is_stolen:
                memory.steal(ctx.job_id)

    held, stolen = memory.enqueue(work, False), memory.enqueue(work, True)
    outcomes = {execution.job_id: execution.outcome for execution in memory.worker().tick()}
    assert outcomes[held] == "completed"
    assert outcomes[stolen] == "interrupted"
    assert set(memory.steps(held)) == {"noted"}
    assert memory.steps(stolen) == {}


def test_an_aborted_run_has_its_statement_cancelled_and_its_connection_replaced(
    postgres: Shop, queue_connection: psycopg.Connection[Any]
) -> None:
    """N-019, N-081: within about a second of the abort, and the writes roll back."""
    pids: list[int] = []
    errors: list[BaseException] = []

    @job(tenant="none")
    def work(ctx: Ctx) -> None:
        try:
            with ctx.transaction() as tx:
                pids.append(tx.info.backend_pid)
                tx.execute("insert into marks (mark) values ('half')")
                tx.execute("select pg_sleep(60)")
        except BaseException as error:
            errors.append(error)
            raise

    job_id = postgres.enqueue(work)
    worker = postgres.running(visibility="6s", renew_every="200ms")
    until(lambda: bool(pids))
    begun = time.monotonic()
    postgres.steal(job_id)
    until(lambda: worker.stats.outcomes == {"interrupted": 1})
    assert time.monotonic() - begun < 10
    assert isinstance(errors[0], psycopg.errors.QueryCanceled)
    assert marks(queue_connection) == []
    alive = "select count(*) from pg_stat_activity where pid = %s"
    until(lambda: queue_connection.execute(alive, [pids[0]]).fetchone() == (0,))


def test_a_body_that_goes_on_after_a_cancel_is_cancelled_again(postgres: Shop, queue_dsn: str) -> None:
    """N-019: until it leaves the block, and the connection is closed then."""
    signal = RunSignal()
    cancelled = 0
    with psycopg.connect(queue_dsn, autocommit=True) as connection:
        with cancel_on_abort(signal, connection) as cancel:
            threading.Timer(0.1, lambda: signal.abort(Aborted("stop", fix="none"))).start()
            for _ in range(2):
                try:
                    connection.execute("select pg_sleep(30)")
                except psycopg.errors.QueryCanceled:
                    cancelled += 1
        assert cancel.fired
        assert connection.closed
    assert cancelled == 2


def test_a_run_that_is_not_aborted_keeps_its_connection(postgres: Shop, queue_dsn: str) -> None:
    """N-019: a later abort reaches nobody else's statement."""
    signal = RunSignal()
    with psycopg.connect(queue_dsn, autocommit=True) as connection:
        with cancel_on_abort(signal, connection) as cancel:
            connection.execute("select 1")
        signal.abort(Aborted("stop", fix="none"))
        assert not cancel.fired
        assert connection.execute("select 2").fetchone() == (2,)


def test_a_server_that_takes_no_cancel_loses_the_connection(
    postgres: Shop, queue_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-019: its socket is shut down, and the waiting thread comes back."""
    from rowsweep.steps import cancel as module

    monkeypatch.setattr(module, "CANCEL_SECONDS", 0.5)
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.25)
    signal = RunSignal()
    with psycopg.connect(queue_dsn, autocommit=True) as connection:
        monkeypatch.setattr(connection, "cancel_safe", lambda **_: None)
        begun = time.monotonic()
        with cancel_on_abort(signal, connection):
            signal.abort(Aborted("stop", fix="none"))
            with pytest.raises(psycopg.OperationalError):
                connection.execute("select pg_sleep(30)")
        assert time.monotonic() - begun < 10


def test_an_event_published_in_a_transaction_is_published_by_its_fence(postgres: Shop) -> None:
    """N-015, N-048, N-117: by a run that still holds its claim; a superseded one publishes nothing."""
    assert isinstance(postgres.driver, PostgresDriver)
    bus = postgres.driver.event_bus()

    @job(tenant="none", input=bool)
    def work(ctx: Ctx, is_stolen: bool) -> None:
        with ctx.transaction():
            publish_event("paid", is_stolen)
            if is_stolen:
                postgres.steal(ctx.job_id)

    for is_stolen in (True, False):
        postgres.enqueue(work, is_stolen)
    use_event_bus(bus)
    try:
        executions = postgres.worker().tick()
    finally:
        use_event_bus(None)
    assert sorted(execution.outcome for execution in executions) == ["completed", "interrupted"]
    assert [event.payload for event in bus.list()] == [False]


def test_an_aborted_run_opens_no_transaction(postgres: Shop, queue_connection: psycopg.Connection[Any]) -> None:
    """S-157."""
    seen: list[str] = []

    class Surroundings:
        signal = RunSignal()

    @job(tenant="none", retry=Retry(attempts=1))
    def work(ctx: Ctx) -> None:
        Surroundings.signal.abort(Aborted("the outer signal", fix="none"))
        try:
            with ctx.transaction():
                seen.append("opened")
        except Interrupted:
            seen.append("interrupted")
            raise

    job_id = postgres.enqueue(work)
    postgres.worker(context=Surroundings).tick()
    assert seen == ["interrupted"]
    assert postgres.job(job_id).last_error_code == "X_ABORTED"
