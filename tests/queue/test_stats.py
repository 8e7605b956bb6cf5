"""Stats: each row is counted once, by queue and state."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from rowsweep.queue.records import JOB_STATES, QueueStats
from rowsweep.queue.verdicts import Retry, Shed
from tests.queue.world import ERROR, World


def only(world: World) -> QueueStats:
    (stats,) = world.jobs.stats()
    return stats


def test_no_rows_no_queues(world: World) -> None:
    """S-069."""
    assert world.jobs.stats() == []


@pytest.mark.parametrize("state", JOB_STATES)
def test_a_row_is_in_exactly_one_bucket(world: World, state: str) -> None:
    """S-069."""
    world.in_state(state)
    counted = asdict(only(world))
    assert {name: counted[name] for name in JOB_STATES if counted[name]} == {state: 1}


def test_a_due_delayed_row_is_ready(world: World) -> None:
    """D-17."""
    world.in_state("delayed")
    assert (only(world).ready, only(world).delayed, only(world).due) == (0, 1, 0)
    world.hands.pass_time(601)
    assert (only(world).ready, only(world).delayed, only(world).due) == (1, 0, 1)


def test_backing_off_and_shed_rows_stay_ready(world: World) -> None:
    """S-113: not parked, so they count in the queue's depth, though they are not due."""
    world.settle(world.running(), Retry(delay_seconds=60, error=ERROR))
    world.settle(world.running(), Shed(delay_seconds=60, reason="full"))
    assert (only(world).ready, only(world).due, only(world).oldest_ready_seconds) == (2, 0, None)


def test_a_due_suspended_row_is_due_and_still_suspended(world: World) -> None:
    """D-17, S-069."""
    world.in_state("suspended")
    assert only(world).due == 0
    world.hands.pass_time(601)
    assert (only(world).suspended, only(world).ready, only(world).due) == (1, 0, 1)


def test_the_oldest_due_row_says_how_long_it_has_waited(world: World) -> None:
    """S-069: of what could be claimed now."""
    world.enqueue(delay_seconds=50)
    world.enqueue()
    world.hands.pass_time(20)
    world.enqueue()
    assert only(world).oldest_ready_seconds == pytest.approx(20, abs=5)
    world.claim()
    assert only(world).oldest_ready_seconds is None


def test_queues_are_counted_apart(world: World) -> None:
    """S-069."""
    for queue, amount in (("b", 2), ("a", 1)):
        for _ in range(amount):
            world.enqueue(queue=queue)
    world.claim(queue="b", limit=1)
    counts = [(stats.queue, stats.ready, stats.running, stats.due) for stats in world.jobs.stats()]
    assert counts == [("a", 1, 0, 1), ("b", 1, 1, 1)]
