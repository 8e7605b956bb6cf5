"""The registry of workers, and an idle worker's look."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rowsweep.queue.stores.workers import Look
from rowsweep.queue.verdicts import Park
from tests.queue.world import World, is_near, worker_info


def look(world: World, *queues: str, names: tuple[str, ...] = ("mail",)) -> Look:
    return world.workers.look(queues=queues or ("default",), names=names, announce=None)


def test_a_look_at_nothing_sees_nothing(world: World) -> None:
    """N-043."""
    assert look(world) == Look(due_queues=[], next_run_in_seconds=None)
    assert world.workers.live() == []


def test_a_look_names_the_queues_with_due_rows(world: World) -> None:
    """N-043: over all its queues at once, of declared names only, and it claims nothing."""
    for queue in ("c", "a", "other"):
        world.enqueue(queue=queue)
    world.enqueue("unknown", queue="b")
    job_id = world.enqueue(queue="a")
    assert sorted(look(world, "a", "b", "c").due_queues) == ["a", "c"]
    assert world.job(job_id).state == "ready"


def test_a_look_knows_the_next_instant(world: World) -> None:
    """N-043, N-032: it shortens the idle wait."""
    world.enqueue("unknown", delay_seconds=10)
    world.enqueue(queue="other", delay_seconds=20)
    world.enqueue(delay_seconds=100)
    seen = look(world)
    assert seen.due_queues == []
    assert seen.next_run_in_seconds == pytest.approx(100, abs=5)


def test_a_look_sees_parked_rows_that_fell_due(world: World) -> None:
    """D-17."""
    world.settle(world.running(), Park(delay_seconds=30))
    assert look(world).due_queues == []
    world.hands.pass_time(31)
    assert look(world).due_queues == ["default"]


def test_a_look_sees_lapsed_rows(world: World) -> None:
    """N-043, S-092: a lapsed row is work, also one that only has to be buried."""
    world.running(max_attempts=1)
    assert look(world).due_queues == []
    world.hands.pass_time(31)
    assert look(world).due_queues == ["default"]


def test_a_worker_announces_itself_with_its_look(world: World) -> None:
    """S-416, D-21: announced again it is one row, kept fresh."""
    info = worker_info("w1", queues=["default", "slow"], names=["a", "b"], app_version=None)
    world.workers.look(queues=["default"], names=["a"], announce=info)
    ((kept, seen_at),) = world.workers.live()
    assert kept == info
    assert is_near(seen_at, world.hands.now())
    world.hands.pass_time(20)
    world.workers.look(queues=["default"], names=["a"], announce=replace(info, in_flight=5, state="draining"))
    world.hands.pass_time(20)
    ((kept, seen_at),) = world.workers.live()
    assert (kept.in_flight, kept.state) == (5, "draining")


def test_a_worker_that_says_nothing_expires(world: World) -> None:
    """S-416: rows expire with the visibility timeout."""
    world.workers.look(queues=["default"], names=["mail"], announce=worker_info("w1"))
    world.hands.pass_time(120)
    assert world.workers.live() == []


def test_a_worker_leaves(world: World) -> None:
    """S-416: once or twice is the same."""
    for worker_id in ("w1", "w2"):
        world.workers.look(queues=["default"], names=["mail"], announce=worker_info(worker_id))
    world.workers.leave("w1")
    world.workers.leave("w1")
    assert [info.id for info, _ in world.workers.live()] == ["w2"]
