"""Renew and progress: the writes a live claim may make, and nobody else."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rowsweep.queue.records import Claim, claim_of
from rowsweep.queue.verdicts import Done
from tests.queue.world import World, fresh_id, ids_of, is_near


def test_a_renewal_counts_from_the_database_s_now(world: World) -> None:
    """S-105, N-038: the window starts anew; it is not added to what is left."""
    job = world.running()
    world.hands.pass_time(20)
    assert world.jobs.renew([claim_of(job)], visibility_seconds=30.0) == [True]
    assert is_near(world.job(job.id).visible_at, world.hands.now() + timedelta(seconds=30))
    world.hands.pass_time(20)
    assert world.claim(worker="w2").jobs == []
    world.hands.pass_time(20)
    assert ids_of(world.claim(worker="w2").jobs) == [job.id]


def test_renewals_are_answered_one_by_one(world: World) -> None:
    """S-102, N-038: True where it is held, exactly False where the fence no longer fits."""
    held, other, settled, cancelled = (world.running() for _ in range(4))
    world.settle(settled, Done())
    world.steering.cancel(cancelled.id)
    claims = [
        claim_of(settled),
        claim_of(held),
        replace(claim_of(other), worker_id="w2"),
        Claim(job_id=fresh_id(), worker_id="w1", claim=1),
        replace(claim_of(other), claim=2),
        claim_of(cancelled),
        claim_of(other),
    ]
    answers = world.jobs.renew(claims, visibility_seconds=60.0)
    assert answers == [False, True, False, False, False, False, True]
    assert all(answer is True or answer is False for answer in answers)
    assert world.jobs.renew([], visibility_seconds=60.0) == []


def test_a_claim_that_is_asked_twice_is_answered_twice(world: World) -> None:
    """N-038: one answer per claim, in order; a row that this very statement locked is not somebody else's."""
    job, other = world.running(), world.running()
    claims = [claim_of(job), claim_of(other), claim_of(job)]
    assert world.jobs.renew(claims, visibility_seconds=60.0) == [True, True, True]


def test_a_claim_taken_over_is_not_renewed(world: World) -> None:
    """S-102: also where the same worker took its own lapsed job."""
    before = world.running()
    world.hands.pass_time(31)
    after = world.take()
    assert world.jobs.renew([claim_of(before), claim_of(after)], visibility_seconds=60.0) == [False, True]


def test_a_lapsed_claim_that_nobody_took_is_renewed(world: World) -> None:
    """S-102: a late keeper keeps what is still its own."""
    job = world.running()
    world.hands.pass_time(31)
    assert world.jobs.renew([claim_of(job)], visibility_seconds=60.0) == [True]
    assert world.claim(worker="w2").jobs == []


def test_renewals_and_progress_leave_updated_at_alone(world: World) -> None:
    """N-029: only a change of state or `run_at` sets it on a live row."""
    job = world.running()
    world.hands.pass_time(10)
    before = world.job(job.id)
    world.jobs.renew([claim_of(job)], visibility_seconds=60.0)
    world.jobs.record_progress(claim_of(job), {"current": 1})
    after = world.job(job.id)
    assert after.updated_at == before.updated_at
    assert (after.visible_at, after.progress) != (before.visible_at, before.progress)


def test_a_take_over_leaves_updated_at_alone(world: World) -> None:
    """N-029: running before and after, it is no change of state."""
    job = world.running()
    world.hands.pass_time(31)
    before = world.job(job.id)
    world.take(worker="w2")
    assert world.job(job.id).updated_at == before.updated_at


def test_the_last_progress_wins(world: World) -> None:
    """D-18, S-409."""
    job = world.running()
    for current in (1, 2):
        value = {"current": current, "total": None, "message": "50 % é"}
        assert world.jobs.record_progress(claim_of(job), value) is True
        assert world.job(job.id).progress == value


@pytest.mark.parametrize("stale", [{"worker_id": "w2"}, {"claim": 2}])
def test_progress_is_fenced_on_the_claim(world: World, stale: dict[str, Any]) -> None:
    """S-102, S-409."""
    job = world.running()
    assert world.jobs.record_progress(replace(claim_of(job), **stale), {"current": 9}) is False
    world.settle(job, Done())
    assert world.jobs.record_progress(claim_of(job), {"current": 9}) is False
    assert world.job(job.id).progress is None
