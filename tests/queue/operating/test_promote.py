"""Promoting: what waits for its time is due now."""

from __future__ import annotations

from uuid import UUID

import pytest

from rowsweep.errors import NotPromotable
from rowsweep.queue.records import JOB_STATES
from rowsweep.queue.selection import PROMOTABLE_STATES, BulkResult, JobSet
from rowsweep.queue.verdicts import Park, Retry
from tests.queue.world import ERROR, World, fresh_id, ids_of, is_near, new_job


def backing_off(world: World) -> UUID:
    """Answer a job that failed once and waits for its second attempt."""
    job = world.running()
    assert world.settle(job, Retry(delay_seconds=600, error=ERROR)) is True
    return job.id


def test_a_delayed_job_is_promoted(world: World) -> None:
    """S-398: due now, and everything else as it was."""
    job_id = world.enqueue(delay_seconds=600, input={"a": 1})
    before = world.job(job_id)
    promoted = world.steering.promote(job_id)
    assert promoted == world.job(job_id)
    assert promoted.state == "ready"
    assert is_near(promoted.run_at, world.hands.now())
    assert is_near(promoted.updated_at, world.hands.now())
    assert (promoted.attempt, promoted.run_id, promoted.input) == (0, before.run_id, {"a": 1})
    assert ids_of(world.claim().jobs) == [job_id]


def test_a_job_that_backs_off_is_promoted(world: World) -> None:
    """S-398: its attempts and its last error stay."""
    job_id = backing_off(world)
    assert world.claim().jobs == []
    promoted = world.steering.promote(job_id)
    assert (promoted.state, promoted.attempt, promoted.last_error) == ("ready", 1, ERROR.text)
    assert ids_of(world.claim().jobs) == [job_id]


@pytest.mark.parametrize("state", [state for state in JOB_STATES if state != "delayed"])
def test_a_job_that_does_not_wait_for_its_time_is_not_promoted(world: World, state: str) -> None:
    """S-398: a ready one is due already, a suspended one waits for more than its time."""
    before = world.job(world.in_state(state))
    with pytest.raises(NotPromotable, match=state):
        world.steering.promote(before.id)
    assert world.job(before.id) == before


def test_a_delayed_job_whose_time_has_come_is_not_promoted(world: World) -> None:
    """S-398."""
    job_id = world.enqueue(delay_seconds=60)
    world.hands.pass_time(61)
    with pytest.raises(NotPromotable, match="due already"):
        world.steering.promote(job_id)


def test_an_unknown_job_is_not_promoted(world: World) -> None:
    """S-398."""
    with pytest.raises(NotPromotable, match="no job"):
        world.steering.promote(fresh_id())


def test_a_set_is_promoted(world: World) -> None:
    """S-398, S-399: delayed and backing off, nothing else."""
    waiting = {backing_off(world), world.enqueue(delay_seconds=60), world.enqueue(delay_seconds=600)}
    parked = world.running()
    world.settle(parked, Park(delay_seconds=600))
    due = world.enqueue()
    untouched = {job_id: world.job(job_id) for job_id in (parked.id, due)}
    assert world.steering.promote_many(JobSet()) == BulkResult(affected=3, remaining=0)
    assert {job_id: world.job(job_id) for job_id in untouched} == untouched
    assert set(ids_of(world.claim().jobs)) == waiting | {due}


def test_a_promoted_set_keeps_to_its_filter_and_its_limit(world: World) -> None:
    """S-398, S-399: `remaining` is what another call could still move."""
    world.jobs.enqueue([new_job("a", delay_seconds=60) for _ in range(5)])
    world.jobs.enqueue([new_job("a", queue="q", delay_seconds=60), new_job("b", delay_seconds=60)])
    world.jobs.enqueue([new_job("a", tenant_id="acme", delay_seconds=60)])
    where = JobSet(queue="default", name="a", state="delayed")
    promote = world.steering.promote_many
    assert promote(JobSet(tenant_id="acme"), limit=0) == BulkResult(affected=0, remaining=1)
    assert promote(where, limit=4) == BulkResult(affected=4, remaining=2)
    assert promote(where, limit=4) == BulkResult(affected=2, remaining=0)
    assert promote(where, limit=4) == BulkResult(affected=0, remaining=0)
    assert promote(JobSet(state="ready")) == BulkResult(affected=0, remaining=0)
    assert promote(JobSet()) == BulkResult(affected=2, remaining=0)


@pytest.mark.parametrize("state", [state for state in JOB_STATES if state not in PROMOTABLE_STATES])
def test_a_set_in_a_state_that_does_not_wait_for_its_time_is_refused(world: World, state: str) -> None:
    """S-398."""
    with pytest.raises(NotPromotable, match=state):
        world.steering.promote_many(JobSet(state=state))  # type: ignore[arg-type]


def test_promoting_joins_a_transaction(world: World) -> None:
    """S-057."""
    job_id = world.enqueue(delay_seconds=60)
    with pytest.raises(ZeroDivisionError), world.driver.transaction() as tx:  # noqa: PT012 - a transaction that the raise ends
        assert tx.stores.steering is not None
        assert tx.stores.steering.promote_many(JobSet()).affected == 1
        raise ZeroDivisionError
    assert world.job(job_id).state == "delayed"
