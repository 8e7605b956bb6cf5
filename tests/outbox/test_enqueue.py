"""Where an enqueue goes: to the queue, into the caller's transaction, or into an outbox."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import rowsweep as rs
from rowsweep.errors import (
    InvalidOption,
    InvariantBroken,
    NotImplementedByDriver,
    SchemaMissing,
    TransactionRequired,
)
from rowsweep.queue.postgres.outbox.install import install_outbox, outbox_sql, outbox_status
from tests.outbox.conftest import queued, staged
from tests.places import own_database


def test_an_enqueue_by_way_of_the_outbox_is_staged_in_the_queue_s_own_database(
    app: rs.App, job: rs.JobHandle[Any, Any]
) -> None:
    """D-24, S-356: `outbox=True`, in the ambient transaction or in one that is given; on both drivers."""
    with rs.transaction() as tx:
        assert job.enqueue(1, outbox=True).state == "staged"
        assert job.enqueue(2, tx=tx, outbox=True).state == "staged"
        job.enqueue(3)
    outbox = app.stores().outbox
    assert outbox is not None
    assert sorted(row.job.input for row in outbox.list()) == [1, 2]
    assert queued(app) == [3]


def test_without_a_transaction_nothing_can_be_staged(app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """S-359, D-23: `X_OUTBOX_NO_TX`; without the option it goes straight to the queue (S-358)."""
    with pytest.raises(TransactionRequired, match="none is open") as refused:
        job.enqueue(1, outbox=True)
    assert (refused.value.code, "with rs.transaction():" in refused.value.fix) == ("X_OUTBOX_NO_TX", True)
    job.enqueue(2)
    assert queued(app) == [2]


def test_a_connection_without_an_encoding_is_refused_with_what_sets_one(
    queue_app: rs.App, job: rs.JobHandle[Any, Any], dsn: str
) -> None:
    """S-013: its texts would come as bytes, and no state of a job be known."""
    with psycopg.connect(dsn) as connection:
        connection.execute("set client_encoding = 'SQL_ASCII'")
        with pytest.raises(InvalidOption, match="client_encoding is SQL_ASCII") as refused:
            job.enqueue(1, tx=connection)
        assert "client_encoding=utf8" in refused.value.fix
        connection.execute("set client_encoding = 'UTF8'")
        job.enqueue(1, tx=connection)
    assert queued(queue_app) == [1]


def test_what_outlives_a_transaction_enqueues_by_itself(app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """S-358: a task started in the block has its context; what is open around the block, it joins still."""
    with rs.transaction():
        with rs.transaction():
            inner = copy_context()
        inner.run(job.enqueue, 1)
    inner.run(job.enqueue, 2)
    assert queued(app) == [1, 2]


def test_what_outlives_a_transaction_joins_no_other(queue_app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """S-358, D-23: by then the pool has lent its connection to another caller, whose commit decides."""
    with rs.transaction():
        started = copy_context()
    with rs.transaction():
        started.run(job.enqueue, 1)
        job.enqueue(2)
        assert queued(queue_app) == [1]


def test_the_option_is_a_yes_or_a_no(app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """D-37."""
    with pytest.raises(InvalidOption, match="outbox must be True or False"):
        job.enqueue(1, outbox="yes")


def test_a_task_s_jobs_are_staged_too(app: rs.App, job: rs.JobHandle[Any, Any]) -> None:
    """S-045: a task's enqueue takes the same options."""
    from rowsweep.jobs.tasks.registry import reset_tasks

    daily = rs.task("daily", cron="0 3 * * *", tz="UTC", enqueue=lambda _at: [(job, 7)])
    try:
        with rs.transaction():
            daily.enqueue(outbox=True)
    finally:
        reset_tasks()
    outbox = app.stores().outbox
    assert outbox is not None
    assert [row.job.input for row in outbox.list()] == [7]


def test_a_database_without_an_outbox_takes_no_job(
    queue_app: rs.App, job: rs.JobHandle[Any, Any], plain_dsn: str
) -> None:
    """D-23: `X_SCHEMA_MISSING`, whose fix makes one; afterwards the very connection stages."""
    with psycopg.connect(plain_dsn, autocommit=True) as connection:
        with pytest.raises(SchemaMissing) as refused, connection.transaction():
            job.enqueue(1, tx=connection)
        assert refused.value.fix.startswith("rowsweep schema install --outbox-only")
        install_outbox(plain_dsn)
        with connection.transaction():
            job.enqueue(2, tx=connection)
    assert staged(plain_dsn) == [2]


@pytest.fixture
def plain_dsn(server_dsn: str) -> Iterator[str]:
    """A database of its own with nothing in it."""
    with own_database(server_dsn) as dsn:
        yield dsn


def test_a_copy_of_the_queue_s_database_takes_no_job_unless_it_is_named(
    dsn: str, schema: str, job: rs.JobHandle[Any, Any], plain_dsn: str
) -> None:
    """N-014: a queue of its own, with the very install id of ours; nobody is known to relay from it."""
    driver = rs.PostgresDriver(dsn)
    driver.install()
    with psycopg.connect(plain_dsn, autocommit=True) as admin, psycopg.connect(dsn) as original:
        admin.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
        there = make_conninfo(plain_dsn, options=f"-csearch_path={schema}")
        copy = rs.PostgresDriver(there)
        copy.install()
        copy.close()
        (install_id,) = original.execute("select install_id from x_schema limit 1").fetchone() or ("",)
        admin.execute(sql.SQL("update {}.x_schema set install_id = %s").format(sql.Identifier(schema)), [install_id])
    app = rs.connect(driver=driver, work=False)
    with psycopg.connect(there) as connection:
        with pytest.raises(InvalidOption, match="has a queue of its own"):
            job.enqueue(1, tx=connection)
        job.enqueue(2, tx=connection, outbox=True)
    app.close()
    known = rs.connect(dsn, work=False, outbox=there)
    with psycopg.connect(there) as connection:
        job.enqueue(3, tx=connection)
    assert (queued(known), staged(there)) == ([], [2, 3])
    known.close()


def test_the_outbox_is_found_in_the_schema_that_was_named(
    dsn: str, schema: str, job: rs.JobHandle[Any, Any], plain_dsn: str
) -> None:
    """N-027: in the schema of the queue's name where there is one, else where the search path finds it."""
    rs.PostgresDriver(dsn).install()
    with psycopg.connect(plain_dsn, autocommit=True) as admin:
        admin.execute("create schema aside")
    install_outbox(plain_dsn)
    install_outbox(plain_dsn, "aside")
    install_outbox(plain_dsn, schema)
    app = rs.connect(dsn, schema=schema, work=False)
    with psycopg.connect(make_conninfo(plain_dsn, options="-csearch_path=aside")) as connection:
        job.enqueue(1, tx=connection)
    app.close()
    app = rs.connect(dsn, work=False)
    with psycopg.connect(make_conninfo(plain_dsn, options="-csearch_path=aside")) as connection:
        job.enqueue(2, tx=connection)
    app.close()
    with psycopg.connect(plain_dsn) as connection:
        for where, values in ((schema, [1]), ("aside", [2]), ("public", [])):
            found = connection.execute(sql.SQL("select input from {}.x_outbox").format(sql.Identifier(where)))
            assert [row[0] for row in found] == values


def test_the_outbox_alone_is_the_queue_s_own(dsn: str, plain_dsn: str) -> None:
    """S-072, N-028: columns, indexes and fillfactor as the whole install makes them; run again it does nothing."""
    rs.PostgresDriver(dsn).install()
    assert not outbox_status(plain_dsn).is_installed
    first = install_outbox(plain_dsn)
    assert (first, first.is_installed, first.has_queue) == (install_outbox(plain_dsn), True, False)
    assert shape(plain_dsn) == shape(dsn)
    assert "create table if not exists x_outbox" in outbox_sql()
    assert 'create table if not exists "a b".x_outbox' in outbox_sql("a b")


def test_no_queue_is_installed_over_an_outbox_of_another_one(plain_dsn: str) -> None:
    """S-072: its rows are another queue's; a schema of its own is free."""
    install_outbox(plain_dsn)
    with pytest.raises(InvariantBroken, match="outbox of another database's queue"):
        rs.PostgresDriver(plain_dsn).install()
    assert rs.PostgresDriver(plain_dsn, schema="rowsweep").install().is_current


def shape(dsn: str) -> list[Any]:
    """Answer the outbox's columns, indexes and options as the catalog has them."""
    with psycopg.connect(dsn) as connection:
        columns = connection.execute(
            """select a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid)
               from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
               where a.attrelid = 'x_outbox'::regclass and a.attnum > 0 order by a.attnum"""
        ).fetchall()
        indexes = connection.execute(
            """select regexp_replace(pg_get_indexdef(indexrelid), ' ON \\S+', '') from pg_index
               where indrelid = 'x_outbox'::regclass order by 1"""
        ).fetchall()
        options = connection.execute("select reloptions from pg_class where oid = 'x_outbox'::regclass").fetchall()
    assert len(columns) == 20
    assert len(indexes) == 3
    return [columns, indexes, options]


def test_an_event_is_not_published_in_a_transaction_of_another_database(
    queue_app: rs.App, shop: psycopg.Connection[Any]
) -> None:
    """N-015: given or ambient, it could not commit with what it tells of."""
    with pytest.raises(InvalidOption, match="another database"), rs.transaction(shop):
        rs.publish_event("paid")
    with pytest.raises(InvalidOption, match="another database"), shop.transaction():
        rs.publish_event("paid", tx=shop)
    with rs.transaction():
        rs.publish_event("paid")


def test_a_guard_holds_no_transaction_of_another_database(queue_app: rs.App, shop: psycopg.Connection[Any]) -> None:
    """N-117: `X_OPTION_INVALID`, and the run fails for good."""
    refused: list[BaseException] = []

    @rs.job("work", tenant="none")
    def work(ctx: rs.Ctx) -> None:
        with shop.transaction():
            try:
                ctx.guard(shop)
            except InvalidOption as error:
                refused.append(error)
                raise

    work.enqueue()
    worker = queue_app.worker(drain_on_shutdown=False)
    (execution,) = worker.tick()
    worker.stop()
    assert execution.outcome == "dead-lettered"
    assert [type(error) for error in refused] == [InvalidOption]


def test_memory_opens_no_transaction_of_a_connection(memory_app: rs.App, shop: psycopg.Connection[Any]) -> None:
    """S-061: refused rather than opened elsewhere; its own open transaction is nested."""
    with pytest.raises(NotImplementedByDriver), rs.transaction(shop):
        pass
    with rs.transaction() as tx, rs.transaction(tx):
        pass
