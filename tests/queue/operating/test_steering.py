"""Steering jobs: cancel, requeue, remove, and the ledger rows that move along."""

from __future__ import annotations

import pytest

from rowsweep.errors import DuplicateJob, InvalidOption, JobNotFound, NotRemovable, NotRequeueable
from rowsweep.queue.records import FINISHED_STATES, JOB_STATES, LIVE_STATES, claim_of
from rowsweep.queue.verdicts import Bury, Done
from tests.queue.world import ERROR, World, fresh_id, ids_of, is_near, step_put


@pytest.mark.parametrize("state", LIVE_STATES)
def test_a_live_job_is_cancelled(world: World, state: str) -> None:
    """S-118, S-395: the lease is nulled, and the row that ended is answered."""
    job_id = world.in_state(state)
    cancelled = world.steering.cancel(job_id, reason="not needed")
    assert cancelled == world.job(job_id)
    assert cancelled is not None
    assert (cancelled.state, cancelled.claimed_by, cancelled.visible_at) == ("cancelled", None, None)
    assert (cancelled.last_error, cancelled.stop_reason) == ("not needed", "cancelled")
    assert is_near(cancelled.updated_at, world.hands.now())


@pytest.mark.parametrize("state", FINISHED_STATES)
def test_a_finished_job_is_left_as_it_ended(world: World, state: str) -> None:
    """S-118, N-029."""
    before = world.job(world.in_state(state))
    assert world.steering.cancel(before.id, reason="too late") is None
    assert world.job(before.id) == before


def test_an_unknown_job_is_not_cancelled(world: World) -> None:
    """S-395."""
    assert world.steering.cancel(fresh_id()) is None


def test_a_cancel_without_a_reason_keeps_the_last_error(world: World) -> None:
    """S-118: `last_error` is set only when a reason is given."""
    job_id = world.in_state("dead")
    world.steering.requeue(job_id)
    world.hands.edit(job_id, last_error="before", last_error_code="X_ABORTED")
    cancelled = world.steering.cancel(job_id)
    assert cancelled is not None
    assert (cancelled.last_error, cancelled.last_error_code) == ("before", "X_ABORTED")


@pytest.mark.parametrize("state", FINISHED_STATES)
def test_a_finished_job_is_requeued(world: World, state: str) -> None:
    """S-394, S-139: due now with attempts counted anew, under its id, run and claim numbers."""
    before = world.job(world.in_state(state, input={"a": 1}))
    world.hands.pass_time(60)
    requeued = world.steering.requeue(before.id)
    assert requeued == world.job(before.id)
    assert (requeued.state, requeued.attempt, requeued.stop_reason) == ("ready", 0, None)
    assert (requeued.run_id, requeued.claims, requeued.input) == (before.run_id, before.claims, {"a": 1})
    assert is_near(requeued.run_at, world.hands.now())
    assert ids_of(world.claim().jobs) == [before.id]


@pytest.mark.parametrize("state", LIVE_STATES)
def test_a_live_job_is_not_requeued(world: World, state: str) -> None:
    """S-394."""
    before = world.job(world.in_state(state))
    with pytest.raises(NotRequeueable):
        world.steering.requeue(before.id)
    assert world.job(before.id) == before


def test_an_unknown_job_is_not_requeued(world: World) -> None:
    """S-394."""
    with pytest.raises(JobNotFound):
        world.steering.requeue(fresh_id())


def test_a_job_whose_key_is_live_is_not_requeued(world: World) -> None:
    """S-394, S-047: checks first, then one statement."""
    finished = world.in_state("dead", idempotency_key="k")
    world.enqueue(idempotency_key="k")
    before = world.job(finished)
    with pytest.raises(DuplicateJob):
        world.steering.requeue(finished)
    assert world.job(finished) == before


def test_a_requeued_job_holds_its_key_again(world: World) -> None:
    """S-047."""
    job_id = world.in_state("done", idempotency_key="k")
    world.steering.requeue(job_id)
    assert world.enqueue(idempotency_key="k") == job_id


@pytest.mark.parametrize("state", [state for state in JOB_STATES if state != "running"])
def test_a_job_is_removed_with_its_steps(world: World, state: str) -> None:
    """S-393, S-165: its key is free afterwards."""
    job = world.running(idempotency_key="k")
    world.steps.put(step_put(job), claim_of(job))
    world.settle(job, Done())
    if state != "done":
        world.hands.edit(job.id, state=state)
    assert world.steering.remove(job.id) is True
    assert world.inspection.get(job.id) is None
    assert world.steps.list(job.run_id) == []
    assert world.steering.remove(job.id) is False
    assert world.enqueue(idempotency_key="k") != job.id


def test_a_running_job_is_not_removed(world: World) -> None:
    """S-393."""
    job = world.running()
    world.steps.put(step_put(job), claim_of(job))
    with pytest.raises(NotRemovable):
        world.steering.remove(job.id)
    assert world.job(job.id) == job
    assert len(world.steps.list(job.run_id)) == 1


def test_removing_one_of_a_run_s_jobs_leaves_the_others_their_steps(world: World) -> None:
    """N-087: the run's steps go with the last of its jobs."""
    first = world.running()
    second = world.enqueue(run_id=first.run_id)
    world.steps.put(step_put(first), claim_of(first))
    world.settle(first, Done())
    world.steering.remove(first.id)
    assert len(world.steps.list(first.run_id)) == 1
    world.steering.remove(second)
    assert world.steps.list(first.run_id) == []


def test_cancelling_a_sweep_s_job_cancels_its_ledger_row(world: World) -> None:
    """N-101, D-36."""
    job = world.sweep()
    world.steering.cancel(job.id, reason="wrong table")
    row = world.row(job.run_id)
    assert (row.status, row.last_error, row.live) == ("cancelled", "wrong table", False)
    assert is_near(row.finished_at, world.hands.now())


def test_requeueing_a_sweep_s_job_sets_its_ledger_row_running(world: World) -> None:
    """N-101, D-36."""
    job = world.sweep()
    world.settle(job, Bury(error=ERROR), sweep=True)
    assert world.row(job.run_id).status == "failed"
    world.steering.requeue(job.id)
    row = world.row(job.run_id)
    assert (row.status, row.wanted, row.finished_at, row.attempt) == ("running", "run", None, 0)


def test_removing_a_sweep_s_job_keeps_its_ledger_row(world: World) -> None:
    """N-101: a row that had not ended ends, for nothing can go on with it; one that had stays as it was."""
    open_job, ended_job = world.sweep(), world.sweep()
    world.settle(ended_job, Bury(error=ERROR), sweep=True)
    world.ledger.steer(open_job.run_id, "pause")
    world.hands.pass_time(31)
    world.ledger.steer(open_job.run_id, "pause")
    for job in (open_job, ended_job):
        assert world.steering.remove(job.id) is True
    assert world.row(open_job.run_id).status == "cancelled"
    row = world.row(ended_job.run_id)
    assert (row.status, row.job_id, row.job_state, row.attempt) == ("failed", None, None, None)


def test_a_run_is_requeued_from_a_step(world: World) -> None:
    """S-163, D-27: that step and every one that started later go with the row; the earlier ones stay."""
    job = world.running()
    for name in ("one", "two", "three"):
        world.steps.put(step_put(job, name), claim_of(job))
    world.wait(job, "four")
    world.settle(job, Bury(error=ERROR))
    requeued = world.steering.requeue(job.id, from_step="two")
    assert (requeued.state, requeued.attempt, requeued.run_id) == ("ready", 0, job.run_id)
    assert [step.name for step in world.steps.list(job.run_id)] == ["one"]


def test_a_step_that_the_run_has_not_stored_is_refused(world: World) -> None:
    """S-163: nothing moves; the nearest step is named."""
    job = world.running()
    world.steps.put(step_put(job, "charge"), claim_of(job))
    world.settle(job, Bury(error=ERROR))
    before = world.job(job.id)
    with pytest.raises(InvalidOption, match="Did you mean 'charge'"):
        world.steering.requeue(job.id, from_step="chargee")
    assert world.job(job.id) == before
    assert len(world.steps.list(job.run_id)) == 1


def test_a_run_with_several_jobs_is_not_requeued_from_a_step(world: World) -> None:
    """N-087: their steps cannot be told apart by one of them."""
    job = world.running()
    world.steps.put(step_put(job), claim_of(job))
    world.settle(job, Bury(error=ERROR))
    world.steering.cancel(world.enqueue(run_id=job.run_id))
    with pytest.raises(NotRequeueable):
        world.steering.requeue(job.id, from_step="one")
    assert len(world.steps.list(job.run_id)) == 1
    assert world.steering.requeue(job.id).state == "ready"


def test_a_job_that_may_not_be_requeued_keeps_its_steps(world: World) -> None:
    """S-394: the checks come first, also with a step."""
    live = world.running()
    world.steps.put(step_put(live), claim_of(live))
    with pytest.raises(NotRequeueable):
        world.steering.requeue(live.id, from_step="one")
    assert len(world.steps.list(live.run_id)) == 1
    with pytest.raises(JobNotFound):
        world.steering.requeue(fresh_id(), from_step="one")


def test_steering_joins_a_transaction(world: World) -> None:
    """S-057."""
    job_id = world.enqueue()
    with pytest.raises(ZeroDivisionError), world.driver.transaction() as tx:  # noqa: PT012 - a transaction that the raise ends
        assert tx.stores.steering is not None
        assert tx.stores.steering.cancel(job_id) is not None
        raise ZeroDivisionError
    assert world.job(job_id).state == "ready"
