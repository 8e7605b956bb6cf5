"""Steps: one row a name, replaced in place, every write fenced on the claim."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rowsweep.errors import LeaseLost
from rowsweep.queue.memory import jsonb
from rowsweep.queue.records import claim_of
from rowsweep.queue.stores.steps import StepSleep
from rowsweep.queue.verdicts import Done, GiveBack
from tests.queue.world import World, fresh_id, is_near, step_put


def test_a_step_is_answered_as_it_is_kept(world: World) -> None:
    """S-161, S-162, S-080."""
    job = world.running()
    put = world.steps.put(step_put(job, "charge", output={"id": 7}), claim_of(job))
    assert put == world.steps.get(job.run_id, "charge")
    assert (put.run_id, put.name, put.kind, put.status) == (job.run_id, "charge", "run", "done")
    assert (put.output, put.attempts, put.error) == ({"id": 7}, 0, None)
    assert is_near(put.started_at, world.hands.now())
    assert is_near(put.completed_at, world.hands.now())
    assert (put.wake_at, put.event, put.correlation_key) == (None, None, None)


def test_an_unknown_step_is_none(world: World) -> None:
    """S-161: by run and by name."""
    job = world.running()
    world.steps.put(step_put(job, "one"), claim_of(job))
    assert world.steps.get(job.run_id, "two") is None
    assert world.steps.get(fresh_id(), "one") is None


def test_a_checkpoint_is_replaced_in_place(world: World) -> None:
    """N-045: one row however many puts, with the last value; it started when it first appeared."""
    job = world.running()
    first = world.steps.put(step_put(job, "pages", kind="checkpoint", output={"index": 0}), claim_of(job))
    world.hands.pass_time(5)
    before = world.steps.get(job.run_id, "pages")
    for index in range(1, 4):
        world.steps.put(step_put(job, "pages", kind="checkpoint", output={"index": index}), claim_of(job))
    (kept,) = world.steps.list(job.run_id)
    assert before is not None
    assert (kept.output, kept.attempts, kept.kind) == ({"index": 3}, first.attempts, "checkpoint")
    assert kept.started_at == before.started_at


def test_a_failed_step_counts_its_failures(world: World) -> None:
    """D-29: a body that raises leaves a `failed` row; its success keeps the count and clears the text."""
    job = world.running()
    for expected in (1, 2):
        failed = world.steps.put(step_put(job, status="failed", error="ValueError: no"), claim_of(job))
        assert (failed.status, failed.attempts, failed.error) == ("failed", expected, "ValueError: no")
    done = world.steps.put(step_put(job, output=1), claim_of(job))
    assert (done.status, done.attempts, done.error, done.output) == ("done", 2, None, 1)


@pytest.mark.parametrize("stale", [{"worker_id": "w2"}, {"claim": 2}])
def test_a_superseded_attempt_writes_no_step(world: World, stale: dict[str, Any]) -> None:
    """S-159: job id, worker id and claim number, else X_JOB_LEASE_LOST and nothing written."""
    job = world.running()
    world.steps.put(step_put(job, output="kept"), claim_of(job))
    claim = replace(claim_of(job), **stale)
    for name in ("one", "two"):
        with pytest.raises(LeaseLost) as refusal:
            world.steps.put(step_put(job, name, output="lost"), claim)
        assert refusal.value.code == "X_JOB_LEASE_LOST"
    assert [step.output for step in world.steps.list(job.run_id)] == ["kept"]


def test_a_claim_that_has_ended_writes_no_step(world: World) -> None:
    """S-159: settled, cancelled, or taken over by the same worker."""
    settled, cancelled, lapsed = world.running(), world.running(), world.running()
    world.settle(settled, Done())
    world.steering.cancel(cancelled.id)
    world.hands.pass_time(31)
    world.take()
    for job in (settled, cancelled, lapsed):
        with pytest.raises(LeaseLost):
            world.steps.put(step_put(job), claim_of(job))
        assert world.steps.list(job.run_id) == []


def test_steps_are_listed_by_start_then_name(world: World) -> None:
    """S-080, S-151: in one read; a later put of an early step does not move it."""
    job = world.running()
    for name in ("third", "first", "second"):
        world.steps.put(step_put(job, name), claim_of(job))
        world.hands.pass_time(1)
    world.steps.put(step_put(job, "third", output=3), claim_of(job))
    world.steps.put(step_put(other := world.running()), claim_of(other))
    assert [step.name for step in world.steps.list(job.run_id)] == ["third", "first", "second"]


def test_steps_are_listed_by_kind(world: World) -> None:
    """D-28: hydration may leave out the kinds it does not replay."""
    job = world.running()
    for name, kind in (("a", "run"), ("b", "part"), ("c", "checkpoint")):
        world.steps.put(step_put(job, name, kind=kind), claim_of(job))
    assert {step.name for step in world.steps.list(job.run_id, kinds=["run", "checkpoint"])} == {"a", "c"}
    assert world.steps.list(job.run_id, kinds=[]) == []


def test_a_step_is_deleted_by_name(world: World) -> None:
    """S-161."""
    job = world.running()
    for name in ("a", "b"):
        world.steps.put(step_put(job, name), claim_of(job))
    assert world.steps.delete(job.run_id, "a") is True
    assert world.steps.delete(job.run_id, "a") is False
    assert [step.name for step in world.steps.list(job.run_id)] == ["b"]


@pytest.mark.parametrize("output", [None, 0, "", [], {}, False, {"z": 1, "a": [1e16, -0.0, "é"]}])
def test_an_output_comes_back_as_jsonb_keeps_it(world: World, output: Any) -> None:
    """S-070, N-044: the same on both drivers, whichever way it is read."""
    job = world.running()
    expected = repr(jsonb.read(jsonb.bind(output)))
    put = world.steps.put(step_put(job, output=output), claim_of(job))
    (listed,) = world.steps.list(job.run_id)
    assert [repr(put.output), repr(listed.output)] == [expected, expected]


def test_a_guard_says_whether_the_claim_stands(world: World) -> None:
    """N-117."""
    job = world.running()
    with world.driver.transaction() as tx:
        assert tx.stores.steps.guard(claim_of(job)) is True
        assert tx.stores.steps.guard(replace(claim_of(job), claim=2)) is False
    world.settle(job, GiveBack())
    with world.driver.transaction() as tx:
        assert tx.stores.steps.guard(claim_of(job)) is False


def test_a_step_joins_a_transaction(world: World) -> None:
    """N-046: the record commits with the work, or not at all."""
    job = world.running()
    with pytest.raises(ZeroDivisionError), world.driver.transaction() as tx:  # noqa: PT012 - a transaction that the raise ends
        tx.stores.steps.put(step_put(job, "lost"), claim_of(job))
        raise ZeroDivisionError
    with world.driver.transaction() as tx:
        tx.stores.steps.put(step_put(job, "kept"), claim_of(job))
    assert [step.name for step in world.steps.list(job.run_id)] == ["kept"]


def test_a_requeued_job_keeps_its_steps(world: World) -> None:
    """S-139."""
    job = world.running()
    world.steps.put(step_put(job), claim_of(job))
    world.settle(job, Done())
    world.steering.requeue(job.id)
    assert [step.name for step in world.steps.list(job.run_id)] == ["one"]


def test_a_sleep_begins_once_and_is_over_when_its_instant_has_passed(world: World) -> None:
    """D-28: `wake_at` is stored by the first call; `done` once it passed on the database's clock."""
    job = world.running()
    asked = StepSleep(run_id=job.run_id, name="nap", seconds=60)
    begun = world.steps.sleep(asked, claim_of(job))
    assert (begun.kind, begun.status, begun.completed_at) == ("sleep", "waiting", None)
    assert is_near(begun.wake_at, world.hands.now() + timedelta(seconds=60))
    world.hands.pass_time(50)
    again = world.steps.sleep(replace(asked, seconds=1), claim_of(job))
    assert again.status == "waiting"
    assert again.started_at < again.wake_at  # type: ignore[operator]
    world.hands.pass_time(11)
    over = world.steps.sleep(asked, claim_of(job))
    assert over.status == "done"
    assert is_near(over.completed_at, world.hands.now())
    world.hands.pass_time(5)
    later = world.steps.sleep(asked, claim_of(job))
    assert is_near(later.completed_at, world.hands.now() - timedelta(seconds=5))


def test_a_sleep_of_no_length_is_over_at_once(world: World) -> None:
    """D-28."""
    job = world.running()
    assert world.steps.sleep(StepSleep(run_id=job.run_id, name="nap", seconds=0), claim_of(job)).status == "done"


def test_a_superseded_run_begins_no_sleep(world: World) -> None:
    """S-159."""
    job = world.running()
    stale = replace(claim_of(job), claim=job.claims + 1)
    with pytest.raises(LeaseLost):
        world.steps.sleep(StepSleep(run_id=job.run_id, name="nap", seconds=1), stale)
    assert world.steps.list(job.run_id) == []
