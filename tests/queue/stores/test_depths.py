"""The sample of queue depths that rides on a look, over both drivers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rowsweep.queue.stores.workers import MOST_SAMPLED, SAMPLE_SECONDS
from rowsweep.telemetry.instruments import Depth
from tests.queue.conftest import PostgresHands
from tests.queue.world import World, bring_into, worker_info


def sample(world: World, worker: str = "w1", **announced: Any) -> Sequence[Depth] | None:
    look = world.workers.look(queues=[], names=[], announce=worker_info(worker, **announced), sample=True)
    return look.depths


def test_one_worker_samples_for_all_until_the_sample_is_old(world: World) -> None:
    """N-125, S-418: whoever finds the last one older than 15 s."""
    assert sample(world, "w1") is not None
    assert sample(world, "w2") is None
    assert sample(world, "w1") is None
    world.hands.pass_time(SAMPLE_SECONDS + 1)
    assert sample(world, "w2") is not None
    assert sample(world, "w1") is None


def test_a_look_that_does_not_ask_or_announces_nobody_samples_nothing(world: World) -> None:
    """N-125, N-043: what nobody records costs nothing."""
    assert world.workers.look(queues=[], names=[], announce=worker_info("w1")).depths is None
    assert world.workers.look(queues=[], names=[], announce=None, sample=True).depths is None
    assert sample(world) is not None


@pytest.mark.parametrize(
    ("state", "ready", "dead"),
    [("ready", 1, 0), ("delayed", 0, 0), ("running", 0, 0), ("suspended", 0, 0), ("done", 0, 0), ("failed", 0, 0),
     ("dead", 0, 1), ("cancelled", 0, 0)],
)  # fmt: skip
def test_depth_is_the_ready_bucket(world: World, state: str, ready: int, dead: int) -> None:
    """D-30, S-417."""
    bring_into(world, state)
    assert sample(world) == [Depth(queue="default", ready=ready, dead=dead, oldest_ready_seconds=_waited(world, state))]


def _waited(world: World, state: str) -> Any:
    return pytest.approx(0, abs=5) if state == "ready" else 0.0


def test_a_due_delayed_row_and_one_that_backs_off_are_ready(world: World) -> None:
    """N-111, S-422."""
    world.enqueue(delay_seconds=50)
    world.enqueue(delay_seconds=500)
    world.hands.pass_time(60)
    (depth,) = sample(world) or ()
    assert depth.ready == 1
    assert depth.oldest_ready_seconds == pytest.approx(10, abs=5)


def test_every_queue_is_counted_also_those_that_no_worker_claims_from(world: World) -> None:
    """S-417: a queue without a worker is the one to alert on; an empty one of the sampler's own reads zero."""
    for queue in ("a", "b", "b"):
        world.enqueue(queue=queue)
    bring_into(world, "dead", queue="default")
    found = {depth.queue: (depth.ready, depth.dead) for depth in sample(world, queues=["own"]) or ()}
    assert found == {"a": (1, 0), "b": (2, 0), "default": (0, 1), "own": (0, 0)}
    assert all(not depth.is_capped for depth in sample(world) or ())


def test_a_sample_stops_counting_where_it_would_hold_up_the_claims(postgres_world: World) -> None:
    """N-125, N-043: and says that there is more; the count of the doctor goes on."""
    assert isinstance(postgres_world.hands, PostgresHands)
    postgres_world.hands.empty()
    postgres_world.hands._connection.execute(
        "insert into x_jobs (id, name, queue, state, input, idempotency_key, run_id, max_attempts, run_at)"
        " select gen_random_uuid(), 'mail', 'default', 'ready', 'null', i::text, gen_random_uuid(), 1, now()"
        " from generate_series(1, %s) i",
        [MOST_SAMPLED + 5],
    )
    (sampled,) = sample(postgres_world) or ()
    assert (sampled.ready, sampled.is_capped) == (MOST_SAMPLED, True)
    health = postgres_world.driver.stores().health
    assert health is not None
    (whole,) = health.depths()
    assert (whole.ready, whole.is_capped) == (MOST_SAMPLED + 5, False)
