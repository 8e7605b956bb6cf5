"""How long a transaction may idle in which a process is frozen: what it holds is everybody's."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
import pytest

from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.postgres.pools import Pools
from rowsweep.queue.postgres.statements.session import PooledSession
from rowsweep.queue.postgres.statements.sql import Statement
from rowsweep.queue.records import ClaimOptions, Job, claim_of
from rowsweep.queue.stores.steps import StepPut
from tests.queue.world import new_job

SHOWN: LiteralString = "select setting::bigint from pg_settings where name = 'idle_in_transaction_session_timeout'"


def idles_ms(connection: psycopg.Connection[Any]) -> int:
    """Answer how long the transaction open on a connection may idle."""
    ((milliseconds,),) = connection.execute(SHOWN).fetchall()
    return int(milliseconds)


def claimed(driver: PostgresDriver, *, seconds: float = 30.0) -> Job:
    """Enqueue a job and claim it for so long."""
    driver.stores().jobs.enqueue([new_job()])
    options = ClaimOptions(queues=["default"], names=["mail"], worker_id="w1", limit=1, visibility_seconds=seconds)
    (job,) = driver.control().jobs.claim(options).jobs
    return job


@pytest.mark.parametrize("control", [False, True])
def test_a_unit_of_the_package_s_own_statements_idles_for_half_a_minute(driver: PostgresDriver, control: bool) -> None:
    """S-323: as that of an operator's pause, which holds the job's row; the next one on the connection begins anew."""
    session = PooledSession(driver._pools, driver._place, control=control)
    for _ in range(2):
        with session.unit() as unit:
            assert idles_ms(unit._connection) == 30_000  # type: ignore[attr-defined]
        with driver._pools.call(control=control) as connection:
            assert idles_ms(connection) == 0


def test_behind_a_pooler_each_statement_is_bounded_so(driver: PostgresDriver) -> None:
    """N-023: it travels there between a `begin` and a `commit` of ours."""
    pools = Pools(driver._connections, pooler=True)
    for control in (False, True):
        session = PooledSession(pools, driver._place, control=control)
        assert session.rows(Statement("shown", SHOWN, repeatable=True), {}) == [(30_000,)]
    pools.close()


@pytest.mark.parametrize("form", ["guard", "put"])
def test_a_fenced_transaction_idles_for_little_longer_than_the_lease_lasts(driver: PostgresDriver, form: str) -> None:
    """S-323, N-060: from when it holds the job's row on, which no renewal and no claim waits for; not before."""
    job = claimed(driver, seconds=60)
    with driver.transaction() as tx:
        assert idles_ms(tx.connection) == 0
        if form == "guard":
            assert tx.stores.steps.guard(claim_of(job))
        else:
            tx.stores.steps.put(
                StepPut(run_id=job.run_id, name="a", kind="run", status="done", output=1), claim_of(job)
            )
        first = idles_ms(tx.connection)
        assert 60_000 < first <= 65_000
        assert tx.stores.steps.guard(claim_of(job))
        assert idles_ms(tx.connection) == first
    with driver.transaction() as tx:
        assert idles_ms(tx.connection) == 0


def test_a_transaction_that_is_bounded_already_keeps_its_bound(driver: PostgresDriver) -> None:
    """N-060: a batch's, or what its owner chose; and a lease of any length makes a bound that Postgres takes."""
    job = claimed(driver, seconds=86_400 * 365)
    with driver.transaction(settings={"idle_in_transaction_session_timeout": "1234"}) as tx:
        assert tx.stores.steps.guard(claim_of(job))
        assert idles_ms(tx.connection) == 1_234
    with driver.transaction() as tx:
        assert tx.stores.steps.guard(claim_of(job))
        assert idles_ms(tx.connection) == 2_147_483_647


def test_a_relay_s_publication_idles_for_half_a_minute(driver: PostgresDriver) -> None:
    """N-117: no other relay waits for rows that one has locked."""
    outbox = driver.stores().outbox
    assert outbox is not None
    (staged,) = outbox.stage([new_job()])
    (row,) = outbox.claim("r1", limit=1, lease_seconds=30).rows
    with driver.transaction() as tx:
        assert tx.stores.outbox is not None
        assert tx.stores.outbox.publish([row.job.id], "r1") == [staged.id]
        assert idles_ms(tx.connection) == 30_000


def test_the_server_takes_a_frozen_transaction_s_locks_back(
    driver: PostgresDriver, other: psycopg.Connection[Any]
) -> None:
    """S-323, S-092: the row is claimed by another worker, and the one that was frozen is told."""
    job = claimed(driver, seconds=0.2)
    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        freeze(driver, job, other)
    options = ClaimOptions(queues=["default"], names=["mail"], worker_id="w2", limit=1, lapsed=True)
    assert [taken.id for taken in driver.control().jobs.claim(options).jobs] == [job.id]


def freeze(driver: PostgresDriver, job: Job, other: psycopg.Connection[Any]) -> None:
    """Do nothing in a fenced transaction until the server has ended it, then go on."""
    with driver.transaction(settings={"idle_in_transaction_session_timeout": "300"}) as tx:
        assert tx.stores.steps.guard(claim_of(job))
        other.execute("select from x_jobs for update")
        tx.connection.execute("select 1")


def test_a_shard_does_not_wait_for_a_row_that_is_locked_while_it_locks_its_own(driver: PostgresDriver) -> None:
    """N-087, S-323: a lease whose row is locked is not renewed, so that waiting for a frozen process would cost it."""
    mine, theirs = claimed(driver), claimed(driver)
    with driver.transaction() as frozen, driver.transaction() as opened:
        assert frozen.stores.steps.guard(claim_of(theirs))
        assert opened.stores.shards is not None
        assert opened.stores.shards.hold(claim_of(mine), theirs.id) is None
    with driver.transaction() as opened:
        assert opened.stores.shards is not None
        assert opened.stores.shards.hold(claim_of(mine), theirs.id) is True
