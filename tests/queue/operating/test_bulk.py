"""Requeueing and removing sets of jobs: at most a thousand a call, and exactly what is left."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from rowsweep.errors import InvalidOption, NotRemovable, NotRequeueable
from rowsweep.queue.records import FINISHED_STATES, JOB_STATES, LIVE_STATES, JobFilter, claim_of
from rowsweep.queue.selection import MAX_BULK_ROWS, BulkResult, JobSet
from rowsweep.queue.verdicts import Bury, Done
from tests.queue.world import ERROR, World, ids_of, is_near, new_job, step_put


def dead(world: World, amount: int = 1, **changes: Any) -> list[UUID]:
    """Answer dead jobs, the one that died first at the head."""
    made = []
    for _ in range(amount):
        made.append(world.in_state("dead", **changes))
        world.hands.pass_time(1)
    return made


def test_a_set_is_requeued(world: World) -> None:
    """S-396: due now with their attempts counted anew, as one is."""
    ids = dead(world, 3)
    assert world.steering.requeue_many(JobSet(state="dead")) == BulkResult(affected=3, remaining=0)
    for job_id in ids:
        job = world.job(job_id)
        assert (job.state, job.attempt, job.last_error, job.stop_reason) == ("ready", 0, None, None)
        assert is_near(job.run_at, world.hands.now())
    assert set(ids_of(world.claim().jobs)) == set(ids)


def test_every_finished_state_can_be_requeued_and_none_is_all_of_them(world: World) -> None:
    """S-394, S-396."""
    for state in sorted(FINISHED_STATES, key="done".__ne__):
        world.in_state(state)
        assert world.steering.requeue_many(JobSet(state=state)) == BulkResult(affected=1, remaining=0)
        assert world.settle(world.take(), Done()) is True
    assert world.steering.requeue_many(JobSet(state="dead")).affected == 0
    world.in_state("dead")
    assert world.steering.requeue_many(JobSet()) == BulkResult(affected=5, remaining=0)


def test_a_set_is_moved_from_the_longest_finished_on(world: World) -> None:
    """S-399: what dies again meanwhile comes last, so it holds up nobody's turn."""
    ids = dead(world, 4)
    assert world.steering.requeue_many(JobSet(state="dead"), limit=3) == BulkResult(affected=3, remaining=1)
    assert set(ids_of(world.claim().jobs)) == set(ids[:3])
    assert world.steering.requeue_many(JobSet(state="dead"), limit=3) == BulkResult(affected=1, remaining=0)


def test_a_set_keeps_to_its_filter(world: World) -> None:
    """S-396, S-397."""
    for name, tenant_id in (("a", "acme"), ("a", None), ("b", "acme"), ("c", None)):
        job = world.running(name, tenant_id=tenant_id)
        world.settle(job, Bury(error=ERROR) if name != "c" else Done())
    requeue, remove = world.steering.requeue_many, world.steering.remove_many
    assert requeue(JobSet(queue="other")) == remove(JobSet(queue="other")) == BulkResult(affected=0, remaining=0)
    assert requeue(JobSet(state="dead", name="a", tenant_id="acme"), limit=0).remaining == 1
    assert requeue(JobSet(state="dead", queue="default"), limit=0).remaining == 3
    assert requeue(JobSet(name="a", tenant_id="acme")) == BulkResult(affected=1, remaining=0)
    assert remove(JobSet(name="a", state="dead")) == BulkResult(affected=1, remaining=0)
    assert {(job.name, job.state) for job in world.inspection.list(JobFilter())} == {
        ("a", "ready"), ("b", "dead"), ("c", "done"),
    }  # fmt: skip


def test_rows_whose_key_is_live_are_left_and_not_counted(world: World) -> None:
    """S-396, S-399: spent only on rows that can move."""
    held, free = dead(world, idempotency_key="k"), dead(world)
    live = world.enqueue(idempotency_key="k")
    before = world.job(held[0])
    assert world.steering.requeue_many(JobSet(state="dead"), limit=1) == BulkResult(affected=1, remaining=0)
    assert world.job(held[0]) == before
    assert world.job(free[0]).state == "ready"
    world.steering.cancel(live)
    assert world.steering.requeue_many(JobSet(state="dead")) == BulkResult(affected=1, remaining=0)


def test_of_several_rows_with_one_key_the_oldest_is_requeued(world: World) -> None:
    """S-396: the others could not be moved by another call, so they do not remain."""
    twins = dead(world, 3, idempotency_key="k")
    alone = dead(world)
    world.enqueue("other", idempotency_key="k")
    assert world.steering.requeue_many(JobSet(state="dead"), limit=0) == BulkResult(affected=0, remaining=2)
    assert world.steering.requeue_many(JobSet(state="dead"), limit=1) == BulkResult(affected=1, remaining=1)
    assert world.job(twins[0]).state == "ready"
    assert world.steering.requeue_many(JobSet(state="dead"), limit=5) == BulkResult(affected=1, remaining=0)
    assert [world.job(job_id).state for job_id in (*twins, *alone)] == ["ready", "dead", "dead", "ready"]


def test_one_key_of_two_tenants_is_two(world: World) -> None:
    """S-396, S-047."""
    dead(world, idempotency_key="k", tenant_id="acme")
    dead(world, idempotency_key="k", tenant_id="umbrella")
    dead(world, idempotency_key="k")
    assert world.steering.requeue_many(JobSet(state="dead")) == BulkResult(affected=3, remaining=0)


@pytest.mark.parametrize("state", LIVE_STATES)
def test_a_set_of_live_jobs_is_not_requeued(world: World, state: str) -> None:
    """S-394."""
    world.in_state(state)
    with pytest.raises(NotRequeueable, match=state):
        world.steering.requeue_many(JobSet(state=state))  # type: ignore[arg-type]


def test_requeued_sweeps_take_their_ledger_rows_along(world: World) -> None:
    """N-101, D-36."""
    runs = []
    for _ in range(2):
        job = world.sweep()
        world.settle(job, Bury(error=ERROR), sweep=True)
        runs.append(job.run_id)
    other = world.sweep("bands")
    world.settle(other, Bury(error=ERROR), sweep=True)
    assert world.steering.requeue_many(JobSet(name="totals", state="dead")).affected == 2
    for run_id in runs:
        row = world.row(run_id)
        assert (row.status, row.wanted, row.last_error, row.finished_at) == ("running", "run", None, None)
    assert world.row(other.run_id).status == "failed"


@pytest.mark.parametrize("state", [state for state in JOB_STATES if state != "running"])
def test_a_set_is_removed_in_any_state_but_running(world: World, state: str) -> None:
    """S-397."""
    gone = world.in_state(state)
    kept = world.running("other")
    assert world.steering.remove_many(JobSet(state=state)) == BulkResult(affected=1, remaining=0)  # type: ignore[arg-type]
    assert world.inspection.get(gone) is None
    assert world.job(kept.id) == kept


def test_without_a_state_all_but_running_jobs_go(world: World) -> None:
    """S-397, S-399: the running one is no row that another call could move."""
    for state in sorted(JOB_STATES, key="ready".__eq__):
        world.in_state(state)
    assert world.steering.remove_many(JobSet(name="mail"), limit=4) == BulkResult(affected=4, remaining=3)
    assert world.steering.remove_many(JobSet(name="mail"), limit=4) == BulkResult(affected=3, remaining=0)
    (queue,) = world.jobs.stats()
    assert queue.running == 1


def test_a_set_of_running_jobs_is_not_removed(world: World) -> None:
    """S-397: cancel them first."""
    job = world.running()
    with pytest.raises(NotRemovable, match="running") as refused:
        world.steering.remove_many(JobSet(state="running"))
    assert refused.value.fix == "rowsweep jobs cancel <id>"
    assert world.job(job.id) == job


def test_a_run_s_steps_go_with_the_last_of_its_jobs(world: World) -> None:
    """S-393, S-397, N-087: also where one call takes several of its jobs."""
    pair, alone, shared = world.running(), world.running(), world.running()
    others = [world.enqueue("other", run_id=run_id) for run_id in (pair.run_id, shared.run_id)]
    for job in (pair, alone, shared):
        world.steps.put(step_put(job), claim_of(job))
        world.settle(job, Done())
    assert world.steering.cancel(others[0]) is not None
    assert world.steering.remove_many(JobSet(state="cancelled")).affected == 1
    assert len(world.steps.list(pair.run_id)) == 1
    assert world.steering.remove_many(JobSet(state="done")).affected == 3
    assert [len(world.steps.list(job.run_id)) for job in (pair, alone, shared)] == [0, 0, 1]
    assert world.steering.remove_many(JobSet()).affected == 1
    assert world.steps.list(shared.run_id) == []


def test_several_jobs_of_one_run_take_its_steps_with_them(world: World) -> None:
    """N-087."""
    job = world.running()
    world.steps.put(step_put(job), claim_of(job))
    world.settle(job, Done())
    world.steering.cancel(world.enqueue(run_id=job.run_id))
    assert world.steering.remove_many(JobSet()).affected == 2
    assert world.steps.list(job.run_id) == []


def test_removed_sweeps_end_their_open_ledger_rows(world: World) -> None:
    """N-101: never deleted; one that had ended stays as it ended."""
    failed = world.sweep()
    world.settle(failed, Bury(error=ERROR), sweep=True)
    paused = world.sweep()
    world.hands.pass_time(31)
    world.ledger.steer(paused.run_id, "pause")
    assert world.steering.remove_many(JobSet(name="totals")).affected == 2
    assert (world.row(failed.run_id).status, world.row(paused.run_id).status) == ("failed", "cancelled")


def test_a_thousand_at_most(world: World) -> None:
    """S-399."""
    world.jobs.enqueue([new_job(delay_seconds=60) for _ in range(MAX_BULK_ROWS + 3)])
    assert MAX_BULK_ROWS == 1_000
    assert world.steering.promote_many(JobSet()) == BulkResult(affected=1_000, remaining=3)
    assert world.steering.remove_many(JobSet()) == BulkResult(affected=1_000, remaining=3)
    for verb in (world.steering.requeue_many, world.steering.remove_many, world.steering.promote_many):
        with pytest.raises(InvalidOption, match="limit"):
            verb(JobSet(), limit=1_001)
        with pytest.raises(InvalidOption, match="limit"):
            verb(JobSet(), limit=-1)


def test_asked_for_none_a_bulk_verb_counts(world: World) -> None:
    """S-399, D-26."""
    ids = dead(world, 2)
    before = [world.job(job_id) for job_id in ids]
    assert world.steering.requeue_many(JobSet(), limit=0) == BulkResult(affected=0, remaining=2)
    assert world.steering.remove_many(JobSet(), limit=0) == BulkResult(affected=0, remaining=2)
    assert [world.job(job_id) for job_id in ids] == before
