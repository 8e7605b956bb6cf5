"""Steer: pause, resume and cancel a run from any process, its ledger row and its jobs in one go."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rowsweep.errors import DuplicateJob, NotCancellable, SweepNotFound, SweepNotLive
from rowsweep.queue.records import Job, claim_of
from rowsweep.queue.stores.ledger import Asked, Tuning, Wanted
from rowsweep.queue.verdicts import Bury, Done, GiveBack, Park
from tests.queue.world import ERROR, World, batch_close, fresh_id, ids_of, is_near, new_backfill, step_put, totals


def waiting_sweep(world: World) -> Job:
    """Open a ledger row whose job nobody works."""
    job = world.job(world.enqueue("totals"))
    world.ledger.start(new_backfill(job.run_id))
    return job


def ended_sweep(world: World, status: str) -> Job:
    """Bring a sweep to its end."""
    job = world.sweep()
    if status == "done":
        assert world.ledger.finish(claim_of(job), job.run_id, totals(3)) is True
        world.settle(job, Done(), sweep=True)
    elif status == "failed":
        world.settle(job, Bury(error=ERROR), sweep=True)
    else:
        world.ledger.steer(job.run_id, "cancel")
    assert world.row(job.run_id).status == status
    return job


@pytest.mark.parametrize("wanted", ["run", "pause", "cancel"])
def test_an_unknown_run_is_not_found(world: World, wanted: Wanted) -> None:
    """N-079, N-072."""
    with pytest.raises(SweepNotFound):
        world.ledger.steer(fresh_id(), wanted)


def test_a_run_that_nobody_works_is_paused_at_once(world: World) -> None:
    """N-080: parked, and it looks again in an hour by itself."""
    job = waiting_sweep(world)
    row = world.ledger.steer(job.run_id, "pause")
    assert row == world.row(job.run_id)
    assert (row.status, row.wanted, row.job_state) == ("paused", "pause", "suspended")
    assert world.claim("totals").jobs == []
    assert is_near(world.job(job.id).run_at, world.hands.now() + timedelta(hours=1))
    world.hands.pass_time(3601)
    assert ids_of(world.claim("totals").jobs) == [job.id]


def test_a_run_that_is_worked_is_only_asked(world: World) -> None:
    """N-080: the batch in flight is finished first; the job and its claim are left alone."""
    job = world.sweep()
    row = world.ledger.steer(job.run_id, "pause")
    assert (row.status, row.wanted, row.live) == ("running", "pause", True)
    assert world.job(job.id) == job
    assert world.ledger.wanted([job.run_id]) == {job.run_id: Asked(wanted="pause")}


def test_a_run_whose_worker_is_gone_is_paused_at_once(world: World) -> None:
    """N-080, N-074: a lapsed lease is no lease; the worker that is gone is not waited for."""
    job = world.sweep()
    world.hands.pass_time(31)
    row = world.ledger.steer(job.run_id, "pause")
    assert (row.status, row.job_state, row.live) == ("paused", "suspended", False)
    assert world.settle(job, GiveBack()) is False
    assert world.claim("totals").jobs == []


def test_a_resumed_run_is_due_now(world: World) -> None:
    """N-080: it goes on behind its cursor, with its attempts as they were."""
    job = world.sweep()
    world.ledger.steer(job.run_id, "pause")
    world.settle(job, Park(delay_seconds=3600, pausing=True), sweep=True)
    row = world.ledger.steer(job.run_id, "run")
    assert (row.status, row.wanted) == ("running", "run")
    assert world.take("totals").attempt == 1


def test_a_pause_is_taken_back_before_anybody_saw_it(world: World) -> None:
    """N-079: the running claim is left alone."""
    job = world.sweep()
    world.ledger.steer(job.run_id, "pause")
    row = world.ledger.steer(job.run_id, "run")
    assert (row.status, row.wanted) == ("running", "run")
    assert world.job(job.id) == job


def test_resuming_does_not_wake_a_run_that_sleeps_on_its_own(world: World) -> None:
    """N-080: only what the pause had parked is made due."""
    job = world.sweep()
    world.settle(job, Park(delay_seconds=600), sweep=True)
    world.ledger.steer(job.run_id, "run")
    assert world.claim("totals").jobs == []


def test_a_cancelled_run_stops_with_its_jobs(world: World) -> None:
    """N-081: job and ledger in one transaction; the claim is gone, so a batch in flight cannot commit."""
    job = world.sweep()
    row = world.ledger.steer(job.run_id, "cancel", reason="wrong table")
    assert (row.status, row.wanted, row.last_error, row.job_state) == (
        "cancelled",
        "cancel",
        "wrong table",
        "cancelled",
    )
    assert is_near(row.finished_at, world.hands.now())
    assert world.ledger.progress(batch_close(job)).held is False
    assert world.jobs.renew([claim_of(job)], visibility_seconds=30.0) == [False]
    assert world.steps.list(job.run_id) == []


def test_a_paused_run_is_cancelled(world: World) -> None:
    """N-081."""
    job = waiting_sweep(world)
    world.ledger.steer(job.run_id, "pause")
    assert world.ledger.steer(job.run_id, "cancel").status == "cancelled"
    assert world.job(job.id).state == "cancelled"


@pytest.mark.parametrize("wanted", ["pause", "run", "cancel"])
@pytest.mark.parametrize("worked", [True, False])
def test_doing_it_twice_is_doing_it_once(world: World, wanted: Wanted, worked: bool) -> None:
    """N-079."""
    job = world.sweep() if worked else waiting_sweep(world)
    first = world.ledger.steer(job.run_id, wanted)
    after = world.job(job.id)
    second = world.ledger.steer(job.run_id, wanted)
    assert (second.status, second.wanted, second.job_state) == (first.status, first.wanted, first.job_state)
    assert world.job(job.id).run_at == after.run_at


@pytest.mark.parametrize("status", ["done", "failed"])
def test_a_finished_run_is_not_cancelled(world: World, status: str) -> None:
    """N-079."""
    job = ended_sweep(world, status)
    before = world.row(job.run_id)
    with pytest.raises(NotCancellable):
        world.ledger.steer(job.run_id, "cancel")
    assert world.row(job.run_id) == before


@pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
def test_a_finished_run_is_not_paused(world: World, status: str) -> None:
    """N-079."""
    job = ended_sweep(world, status)
    before = world.row(job.run_id)
    with pytest.raises(SweepNotLive):
        world.ledger.steer(job.run_id, "pause")
    assert world.row(job.run_id) == before


def test_a_done_run_is_not_resumed(world: World) -> None:
    """N-079."""
    job = ended_sweep(world, "done")
    with pytest.raises(SweepNotLive):
        world.ledger.steer(job.run_id, "run")


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_an_unfinished_run_is_taken_up_again(world: World, status: str) -> None:
    """N-082: from the checkpoint, with attempts counted anew."""
    job = world.sweep()
    world.steps.put(step_put(job, "sweep:pages", kind="checkpoint", output={"index": 4}), claim_of(job))
    if status == "failed":
        world.settle(job, Bury(error=ERROR), sweep=True)
    else:
        world.ledger.steer(job.run_id, "cancel", reason="wait")
    row = world.ledger.steer(job.run_id, "run")
    assert (row.status, row.wanted, row.finished_at, row.attempt) == ("running", "run", None, 0)
    again = world.take("totals")
    assert (again.id, again.attempt, again.claims) == (job.id, 1, 2)
    step = world.steps.get(job.run_id, "sweep:pages")
    assert step is not None
    assert step.output == {"index": 4}


def test_only_unfinished_jobs_are_taken_up_again(world: World) -> None:
    """N-082, N-088: a shard that is done stays done."""
    job = world.sweep()
    sibling = world.running("totals", run_id=job.run_id)
    world.settle(sibling, Done())
    world.settle(job, Bury(error=ERROR), sweep=True)
    world.ledger.steer(job.run_id, "run")
    assert (world.job(job.id).state, world.job(sibling.id).state) == ("ready", "done")


def test_a_run_whose_key_another_one_holds_is_not_taken_up_again(world: World) -> None:
    """N-082, S-394."""
    job = world.sweep(idempotency_key="sweep:totals:1")
    world.settle(job, Bury(error=ERROR), sweep=True)
    world.enqueue("totals", idempotency_key="sweep:totals:1")
    with pytest.raises(DuplicateJob):
        world.ledger.steer(job.run_id, "run")
    assert (world.row(job.run_id).status, world.job(job.id).state) == ("failed", "dead")


def test_a_run_is_taken_up_again_with_all_its_jobs_or_none(world: World) -> None:
    """N-079, N-082: one transaction, so a key that is taken leaves every job as it ended."""
    first = world.sweep()
    second = world.running("totals", run_id=first.run_id, idempotency_key="sweep:totals:1:s2")
    world.settle(second, Bury(error=ERROR))
    world.settle(first, Bury(error=ERROR), sweep=True)
    world.enqueue("totals", idempotency_key="sweep:totals:1:s2")
    with pytest.raises(DuplicateJob):
        world.ledger.steer(first.run_id, "run")
    assert (world.job(first.id).state, world.job(second.id).state) == ("dead", "dead")


def test_what_is_wanted_is_answered_for_many(world: World) -> None:
    """N-079: one statement for all sweeps of a worker; a run without a row is left out."""
    running, paused = world.sweep(), world.sweep()
    world.ledger.steer(paused.run_id, "pause")
    unknown = fresh_id()
    wanted = world.ledger.wanted([running.run_id, unknown, paused.run_id])
    assert dict(wanted) == {running.run_id: Asked(wanted="run"), paused.run_id: Asked(wanted="pause")}
    assert dict(world.ledger.wanted([])) == {}


@pytest.mark.parametrize("held", [True, False])
def test_a_pause_keeps_who_asked_and_why_until_the_next(world: World, held: bool) -> None:
    """N-079, N-080: twice is once, the first reason stands; a pause that says nothing forgets the former's."""
    job = world.sweep() if held else waiting_sweep(world)
    row = world.ledger.steer(job.run_id, "pause", reason="lunch", by="ann")
    assert {**row.options["paused"], "at": ""} == {"by": "ann", "reason": "lunch", "at": ""}
    assert row.options["paused"]["at"].endswith("Z")
    again = world.ledger.steer(job.run_id, "pause", reason="later", by="bob")
    assert again.options == row.options
    world.ledger.steer(job.run_id, "run")
    assert "paused" not in world.ledger.steer(job.run_id, "pause").options


def test_a_live_run_is_tuned_and_an_ended_one_is_not(world: World) -> None:
    """N-122: merged into the row's options with who and when, read with what is wanted; no job is touched."""
    job = world.sweep()
    row = world.ledger.steer(job.run_id, Tuning(rate="50/s", by="ann"))
    assert (row.options["rate"], row.options["tuned"]["by"], row.wanted) == ("50/s", "ann", "run")
    assert "batch_rows" not in row.options
    first = row.options["tuned"]["at"]
    world.ledger.steer(job.run_id, "pause")
    row = world.ledger.steer(job.run_id, Tuning(batch_rows=7, by=None))
    assert (row.options["rate"], row.options["batch_rows"], row.options["tuned"]["by"]) == ("50/s", 7, None)
    assert row.options["tuned"]["at"] >= first
    assert world.ledger.wanted([job.run_id]) == {job.run_id: Asked(wanted="pause", options=row.options)}
    assert world.job(job.id) == job
    world.ledger.steer(job.run_id, "cancel")
    with pytest.raises(SweepNotLive):
        world.ledger.steer(job.run_id, Tuning(rate="1/s"))
    with pytest.raises(SweepNotFound):
        world.ledger.steer(fresh_id(), Tuning(rate="1/s"))
