"""Rows that another session has locked: skipped and answered None, never waited for; Postgres alone has such."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from uuid import UUID

import pytest

from rowsweep.queue.records import Claim, claim_of
from rowsweep.queue.verdicts import Done, Retry, Settlement
from tests.queue.conftest import empty_world
from tests.queue.world import ERROR, World, ids_of, step_put


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    """The Postgres driver, holding no rows."""
    return empty_world("postgres", request)


@contextmanager
def locked(world: World, job_id: UUID, claim: Claim | None = None) -> Iterator[None]:
    """Hold a job's row in another transaction, as a guard does."""
    with world.driver.transaction() as tx:
        if claim is not None:
            assert tx.stores.steps.guard(claim) is True
        else:
            tx.connection.execute("select id from x_jobs where id = %s for update", [job_id])
        yield


def holding(world: World, job: Any) -> AbstractContextManager[None]:
    return locked(world, job.id, claim_of(job))


def test_a_locked_row_is_neither_renewed_nor_lost(world: World) -> None:
    """N-038, S-105: None for it, True for the others in the same statement, False for what no longer fits."""
    held, free, gone = world.running(), world.running(), world.running()
    world.settle(gone, Done())
    claims = [claim_of(job) for job in (held, free, gone)]
    with holding(world, held):
        assert world.driver.control().jobs.renew(claims, visibility_seconds=60.0) == [None, True, False]
    assert world.jobs.renew(claims, visibility_seconds=60.0) == [True, True, False]


def test_a_locked_row_holds_up_no_settle(world: World) -> None:
    """N-035: skipped and answered None, so it is sent again; the others landed."""
    held, free = world.running(), world.running()
    group = [Settlement(claim=claim_of(job), verdict=Done()) for job in (held, free)]
    with holding(world, held):
        assert world.jobs.settle(group) == [None, True]
        assert world.jobs.settle(group, resent=True) == [None, True]
    assert world.job(held.id).state == "running"
    assert world.jobs.settle(group, resent=True) == [True, True]


def test_a_locked_row_is_passed_over_by_a_claim(world: World) -> None:
    """S-091, N-117: waiting or lapsed, it is not waited for."""
    lapsed = world.running()
    world.hands.pass_time(31)
    waiting, free = world.enqueue(), world.enqueue()
    with locked(world, lapsed.id), locked(world, waiting):
        assert ids_of(world.claim(worker="w2", limit=2).jobs) == [free]
    assert set(ids_of(world.claim(worker="w2").jobs)) == {lapsed.id, waiting}


def test_a_claim_takes_its_limit_from_behind_locked_rows(world: World) -> None:
    """S-091: rows in other hands do not use up the limit."""
    rows = [world.enqueue() for _ in range(4)]
    with locked(world, rows[0]), locked(world, rows[1]):
        assert ids_of(world.claim(limit=2).jobs) == rows[2:]


def test_a_guarded_claim_keeps_its_row_until_the_transaction_ends(world: World) -> None:
    """N-117: nobody claims it, though its lease has lapsed."""
    job = world.running()
    world.hands.pass_time(31)
    with holding(world, job):
        assert world.claim(worker="w2").jobs == []
    assert ids_of(world.claim(worker="w2").jobs) == [job.id]


def test_a_put_in_a_transaction_keeps_the_job_row(world: World) -> None:
    """N-117: a put that joins a transaction locks the row as a guard does."""
    job = world.running()
    world.hands.pass_time(31)
    with world.driver.transaction() as tx:
        tx.stores.steps.put(step_put(job), claim_of(job))
        assert world.claim(worker="w2").jobs == []
        assert world.settle(job, Retry(delay_seconds=0, error=ERROR)) is None
    assert world.settle(job, Retry(delay_seconds=0, error=ERROR)) is True


def test_a_locked_row_is_passed_over_by_a_publication(world: World) -> None:
    """N-048: it waits for nobody; the poll makes due what it passed over."""
    held, free = world.parked(), world.parked()
    with locked(world, held.id):
        assert world.publish().due_queues == ["default"]
        assert ids_of(world.claim().jobs) == [free.id]
        look = world.workers.look(queues=["default"], names=["mail"], announce=None, poll=["mail"])
        assert look.due_queues == []
    look = world.workers.look(queues=["default"], names=["mail"], announce=None, poll=["mail"])
    assert look.due_queues == ["default"]
    assert ids_of(world.claim().jobs) == [held.id]
