"""The driver: its connections, its transactions, and a caller's connection."""

from __future__ import annotations

import os
import pickle
import secrets
import threading
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads

from rowsweep.embedded import EmbeddedServer
from rowsweep.errors import DriverUnavailable, InvalidOption, TimedOut, TransactionEnded, UnknownRowStatus
from rowsweep.queue.postgres.connections import Connections
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.postgres.install import install
from rowsweep.queue.records import ClaimOptions, Job, JobFilter, claim_of
from rowsweep.queue.stores.steps import StepPut
from tests.queue.world import batch_close, new_backfill, new_job

NOWHERE = "postgresql://someone:hunter2@127.0.0.1:1/nowhere"


def test_nothing_is_opened_before_the_first_use() -> None:
    """S-061, N-109: a wrong DSN is noticed at the first call, in our words and without its password."""
    driver = PostgresDriver(NOWHERE)
    stores = driver.stores()
    with pytest.raises(DriverUnavailable) as caught:
        driver.ping()
    assert "hunter2" not in str(caught.value) + driver.place + repr(caught.value.meta)
    assert "start the server there, or correct host and port" in caught.value.fix
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), DriverUnavailable)
    with pytest.raises(DriverUnavailable):
        stores.jobs.enqueue([new_job()])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"dbname": "no such"}, "correct the name"), ({"user": "nobody here"}, "correct the name"),
     ({"host": "/nowhere"}, "start the server there"), ({"host": "no.such.invalid"}, "correct the host")],
)  # fmt: skip
def test_what_cannot_be_reached_says_which_part_of_the_dsn_to_look_at(
    dsn: str, wrong: dict[str, str], words: str
) -> None:
    """S-061, D-23: a server refuses for many reasons, and each has a fix of its own."""
    with pytest.raises(DriverUnavailable) as caught:
        PostgresDriver(make_conninfo(dsn, **wrong)).ping()
    assert words in caught.value.fix


def test_no_connections_are_refused_with_all_ways_to_give_some() -> None:
    """S-061: nothing ambient stands in."""
    with pytest.raises(DriverUnavailable, match=r"DATABASE_URL.*MemoryDriver"):
        PostgresDriver(None)


def test_the_queue_s_statements_choose_their_own_isolation(dsn: str, driver: PostgresDriver) -> None:
    """N-118: whatever the role or database defaults to."""
    schema = driver.schema_status().schema
    chosen = "-c default_transaction_isolation=serializable -c default_transaction_read_only=on"
    strict = make_conninfo(dsn, options=f"{chosen} -c search_path={schema} -c TimeZone=Asia/Tokyo")
    twin = PostgresDriver(strict)
    twin.stores().jobs.enqueue([new_job()])
    with twin.transaction() as tx:
        shown = tx.connection.execute("show transaction_isolation").fetchone()
        assert shown == ("read committed",)
        tx.stores.jobs.enqueue([new_job()])
    with twin.sweep_connection() as connection:
        connection.execute("begin")
        assert connection.execute("show transaction_isolation").fetchone() == ("read committed",)
        connection.execute("commit")
    twin.close()


def test_a_pooler_gets_no_session_settings_and_nothing_prepared(dsn: str, driver: PostgresDriver) -> None:
    """N-023, N-118: every statement brings its own transaction, and answers the same."""
    schema = driver.schema_status().schema
    strict = make_conninfo(
        dsn, options=f"-c default_transaction_isolation=serializable -c search_path={schema} -c TimeZone=Asia/Tokyo"
    )
    pooled = PostgresDriver(strict, pooler=True)
    pooled.stores().jobs.enqueue([new_job() for _ in range(3)])
    options = ClaimOptions(queues=["default"], names=["mail"], worker_id="w1", limit=3)
    jobs = pooled.control().jobs.claim(options).jobs
    assert all(job.run_at.tzinfo is UTC for job in jobs)
    for _ in range(10):
        assert pooled.control().jobs.renew([claim_of(job) for job in jobs], visibility_seconds=30) == [True] * 3
    with pooled.transaction() as tx:
        assert tx.connection.execute("show transaction_isolation").fetchone() == ("read committed",)
        assert tx.connection.execute("show timezone").fetchone() == ("Asia/Tokyo",)
        assert tx.connection.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)
    pooled.close()


def test_a_transaction_s_settings_end_with_it(driver: PostgresDriver) -> None:
    """N-009: nothing stays on a pooled connection."""
    with driver.transaction(settings={"rowsweep.tenant": "acme"}) as tx:
        assert tx.connection.execute("select current_setting('rowsweep.tenant')").fetchone() == ("acme",)
    with driver.transaction() as tx:
        left = tx.connection.execute("select current_setting('rowsweep.tenant', true)").fetchone()
        assert left in ((None,), ("",))


def test_a_body_s_settings_do_not_reach_the_next_one(driver: PostgresDriver) -> None:
    """N-009: not even those it made for the session, nor its row factory or temporary tables."""
    with driver.sweep_connection() as connection:
        connection.execute("set search_path = pg_catalog")
        connection.execute("set statement_timeout = '77s'")
        connection.execute("create temporary table left_over (n integer)")
        connection.row_factory = dict_row
        pid = connection.info.backend_pid
    with driver.sweep_connection() as connection:
        assert connection.info.backend_pid == pid
        assert connection.execute("show statement_timeout").fetchone() == ("0",)
        assert connection.execute("select to_regclass('left_over')").fetchone() == (None,)
        assert connection.execute("show timezone").fetchone() == ("UTC",)


def test_a_sweep_connection_left_in_a_transaction_is_closed(driver: PostgresDriver) -> None:
    """N-019: it never goes back into the pool."""
    with driver.sweep_connection() as connection:
        connection.execute("begin")
        pid = connection.info.backend_pid
    with driver.sweep_connection() as connection:
        assert connection.info.backend_pid != pid
        assert connection.info.transaction_status is TransactionStatus.IDLE


def test_a_handler_cannot_end_an_open_batch(driver: PostgresDriver) -> None:
    """N-063: commit and rollback are refused while the batch is open, savepoints are not."""
    with driver.sweep_connection() as connection:
        connection.execute("begin")
        connection.batch_open = True
        with pytest.raises(TransactionEnded):
            connection.commit()
        with pytest.raises(TransactionEnded):
            connection.rollback()
        with connection.transaction():
            connection.execute("select 1")
        connection.batch_open = False
        connection.rollback()


def test_a_commit_in_a_handler_s_own_sql_is_found(driver: PostgresDriver) -> None:
    """N-063: the marker of the batch is gone with its transaction, and nothing is stored."""
    driver.stores().jobs.enqueue([new_job()])
    job = claim_one(driver)
    ledger = driver.stores().ledger
    assert ledger is not None
    ledger.start(new_backfill(job.run_id))
    with driver.sweep_connection() as connection:
        connection.execute("begin")
        connection.execute("select set_config('rowsweep.batch', 'm1', true)")
        connection.execute("commit; begin")
        joined = driver.join(connection).ledger
        assert joined is not None
        closed = joined.progress(batch_close(job, marker="m1"))
        connection.execute("commit")
    assert closed.open is False
    assert driver.stores().steps.list(job.run_id) == []


def claim_one(driver: PostgresDriver) -> Job:
    """Claim one `mail` job."""
    options = ClaimOptions(queues=["default"], names=["mail"], worker_id="w1", limit=1)
    (job,) = driver.control().jobs.claim(options).jobs
    return job


@pytest.mark.parametrize("autocommit", [True, False])
def test_an_enqueue_on_a_caller_s_connection_waits_for_its_commit(
    driver: PostgresDriver, dsn: str, autocommit: bool
) -> None:
    """N-014, S-005: never committed for the caller, whatever the connection is set up as."""
    with psycopg.connect(dsn, autocommit=autocommit, row_factory=dict_row) as connection:
        connection.execute("set datestyle = 'german'; set timezone = 'Asia/Tokyo'")
        connection.commit()
        with connection.transaction():
            driver.join(connection).jobs.enqueue([new_job() for _ in range(3)])
            assert driver.stores().jobs.stats() == []
        assert driver.stores().jobs.stats()[0].ready == 3
        with connection.transaction(force_rollback=True):
            driver.join(connection).jobs.enqueue([new_job()])
        assert driver.stores().jobs.stats()[0].ready == 3


def test_a_caller_s_connection_without_a_transaction_is_not_left_in_one(driver: PostgresDriver, dsn: str) -> None:
    """N-014: in autocommit mode the enqueue is its own; otherwise the caller's next commit decides."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        driver.join(connection).jobs.enqueue([new_job(), new_job()])
        assert connection.info.transaction_status is TransactionStatus.IDLE
    with psycopg.connect(dsn) as connection:
        driver.join(connection).jobs.enqueue([new_job(), new_job()])
        connection.rollback()
    assert driver.stores().jobs.stats()[0].ready == 2


def test_a_caller_s_set_up_changes_no_answer(driver: PostgresDriver, dsn: str) -> None:
    """S-005, S-085: other factories, loaders, DateStyle and TimeZone, and the answers are the same."""
    (result,) = driver.stores().jobs.enqueue([new_job(input={"a": [1, None]})])
    inspection = driver.stores().inspection
    assert inspection is not None
    expected = inspection.get(result.id)
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute("set datestyle = 'german'; set timezone = 'America/New_York'")
        set_json_loads(str, connection)
        joined = driver.join(connection).inspection
        assert joined is not None
        job = joined.get(result.id)
    assert job == expected
    assert job is not None
    assert job.created_at.tzinfo is UTC
    assert job.input == {"a": [1, None]}


def test_a_caller_s_pipeline_changes_no_answer(driver: PostgresDriver, dsn: str) -> None:
    """N-014, S-005: an answer that is still on its way is waited for, and what came of it is told."""
    with psycopg.connect(dsn) as connection, connection.pipeline():
        first, again = driver.join(connection).jobs.enqueue(
            [new_job(idempotency_key="k"), new_job(idempotency_key="k")]
        )
        assert (first.deduplicated, again.deduplicated, again.id) == (False, True, first.id)
        inspection = driver.join(connection).inspection
        assert inspection is not None
        found = inspection.get(first.id)
        connection.commit()
    assert found is not None
    assert driver.stores().jobs.stats()[0].ready == 1


def test_what_holds_no_psycopg_connection_cannot_be_joined(driver: PostgresDriver) -> None:
    """N-014: said with what would do."""
    with pytest.raises(InvalidOption, match="psycopg"):
        driver.join(object())


def test_a_wrapper_s_psycopg_connection_is_found(driver: PostgresDriver, dsn: str) -> None:
    """N-014: as SQLAlchemy and Django hold theirs."""

    class Fairy:
        def __init__(self, held: Any) -> None:
            self.driver_connection = held

    class Wrapper:
        def __init__(self, held: Any) -> None:
            self.connection = held

    with psycopg.connect(dsn) as connection:
        for wrapped in (Wrapper(connection), Wrapper(Fairy(connection))):
            assert driver.join(wrapped).jobs.stats() == []


def test_the_queue_s_own_database_is_told_from_others(driver: PostgresDriver, dsn: str, server_dsn: str) -> None:
    """N-014: by install id, database and server together; asking disturbs no transaction."""
    name = f"elsewhere_{secrets.token_hex(6)}"
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    try:
        with psycopg.connect(dsn) as here, psycopg.connect(make_conninfo(dsn, dbname=name)) as there:
            assert driver.is_home(here) is True
            assert driver.is_home(there) is False
            assert there.execute("select 1").fetchone() == (1,)
            there.rollback()
            copy = PostgresDriver(make_conninfo(dsn, dbname=name), schema=driver.schema_status().schema)
            status = copy.install()
            there.execute(
                sql.SQL("update {}.x_schema set install_id = %s").format(sql.Identifier(status.schema)),
                [driver.schema_status().install_id],
            )
            there.commit()
            assert driver.is_home(there) is False
            copy.close()
    finally:
        with psycopg.connect(server_dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def test_the_control_connections_are_not_the_bodies(dsn: str) -> None:
    """N-040: bodies that use up their pool stop no renewal."""
    install(dsn)
    driver = PostgresDriver(Connections(dsn=dsn, work=1, control=1, wait_seconds=0.2))
    with driver.sweep_connection():
        assert driver.control().jobs.renew([], visibility_seconds=30) == []
        assert len(driver.control().jobs.stats()) == 0
        with pytest.raises(DriverUnavailable, match="all 1 connections"):
            driver.stores().jobs.enqueue([new_job()])
    driver.stores().jobs.enqueue([new_job()])
    driver.close()


def test_room_for_more_bodies_can_be_reserved(dsn: str) -> None:
    """N-040: a connection for each body and two beside, also once the pool is open."""
    install(dsn)
    driver = PostgresDriver(Connections(dsn=dsn, work=1, wait_seconds=5))
    driver.stores().jobs.stats()
    driver.reserve(3)
    with ExitStack() as bodies:
        for _ in range(4):
            bodies.enter_context(driver.sweep_connection())
        assert driver.stores().jobs.stats() == []
    driver.close()


@pytest.mark.slow
def test_a_control_statement_gives_up_on_a_long_lock(driver: PostgresDriver, other: psycopg.Connection[Any]) -> None:
    """N-038, D-15: after 5 s, in our words."""
    driver.stores().jobs.enqueue([new_job()])
    job = claim_one(driver)
    with other.transaction():
        other.execute("select from x_jobs for update")
        with pytest.raises(TimedOut):
            driver.control().jobs.record_progress(claim_of(job), 1)


def test_a_forked_child_opens_its_own_connections(driver: PostgresDriver) -> None:
    """N-002: the parent's go on, and the child never touches them."""
    driver.stores().jobs.enqueue([new_job()])
    with driver.transaction() as tx:
        mine = tx.connection.info.backend_pid
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        answer = b"failed"
        try:
            driver.stores().jobs.enqueue([new_job()])
            with driver.transaction() as tx:
                answer = b"own" if tx.connection.info.backend_pid != mine else b"parent's"
            driver.close()
        finally:
            os.write(writes, answer)
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reads, 20) == b"own"
    with driver.transaction() as tx:
        assert tx.connection.info.backend_pid == mine
    assert driver.stores().jobs.stats()[0].ready == 2


def test_a_driver_can_be_closed_and_used_again(driver: PostgresDriver) -> None:
    """S-303: closing ends the connections, not the driver."""
    driver.stores().jobs.enqueue([new_job()])
    driver.close()
    driver.close()
    assert driver.stores().jobs.stats()[0].ready == 1


def test_killed_connections_are_replaced_without_a_failed_call(
    driver: PostgresDriver, other: psycopg.Connection[Any]
) -> None:
    """N-024: what the server closed meanwhile is noticed before a statement is sent on it."""
    with driver.transaction() as one, driver.transaction() as two:
        pids = [tx.connection.info.backend_pid for tx in (one, two)]
    other.execute("select pg_terminate_backend(pid, 5000) from unnest(%s::integer[]) as pid", [pids])
    driver.stores().jobs.enqueue([new_job()])
    assert driver.stores().jobs.stats()[0].ready == 1


def test_work_goes_on_within_seconds_of_a_restart(private_server: EmbeddedServer) -> None:
    """N-024: reads wait for the server, writes are refused meanwhile and not repeated."""
    install(private_server.dsn)
    driver = PostgresDriver(Connections(dsn=private_server.dsn, wait_seconds=0.5))
    driver.stores().jobs.enqueue([new_job()])
    inspection = driver.stores().inspection
    assert inspection is not None
    private_server.stop()
    with pytest.raises(DriverUnavailable):
        driver.stores().jobs.enqueue([new_job()])
    found: list[Job] = []
    reading = threading.Thread(target=lambda: found.extend(inspection.list(JobFilter())))
    reading.start()
    private_server.restart()
    back_at = datetime.now(UTC)
    reading.join(10)
    assert len(found) == 1
    assert datetime.now(UTC) - back_at < timedelta(seconds=5)
    driver.close()


def test_steps_keep_their_order_within_one_transaction(driver: PostgresDriver) -> None:
    """S-080, S-163: steps of one transaction are told apart by when they started."""
    driver.stores().jobs.enqueue([new_job()])
    job = claim_one(driver)
    names = ["b", "a", "c"]
    with driver.transaction() as tx:
        for name in names:
            tx.stores.steps.put(StepPut(run_id=job.run_id, name=name, kind="run", status="done"), claim_of(job))
    assert [step.name for step in driver.stores().steps.list(job.run_id)] == names


def test_a_row_whose_status_is_unknown_is_refused(connection: psycopg.Connection[Any], dsn: str) -> None:
    """S-088: a later release's state is never passed on as if it were understood."""
    install(connection)
    driver = PostgresDriver(dsn)
    try:
        (queued,) = driver.stores().jobs.enqueue([new_job()])
        checks = connection.execute(
            "select conname from pg_constraint where conrelid = 'x_jobs'::regclass and contype = 'c'"
        ).fetchall()
        for (name,) in checks:
            connection.execute(sql.SQL("alter table x_jobs drop constraint {}").format(sql.Identifier(name)))
        connection.execute("update x_jobs set state = 'hibernating'")
        inspection = driver.stores().inspection
        assert inspection is not None
        with pytest.raises(UnknownRowStatus, match="hibernating") as caught:
            inspection.get(queued.id)
        assert caught.value.code == "X_JOB_ROW_STATUS_UNKNOWN"
    finally:
        driver.close()


def test_a_transaction_needs_no_tables(dsn: str) -> None:
    """N-109: an application's own statements, and what looks at a place before it installs there."""
    driver = PostgresDriver(dsn)
    try:
        with driver.transaction() as opened:
            assert opened.connection.execute("select 1").fetchone() == (1,)
    finally:
        driver.close()
