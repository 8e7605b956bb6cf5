"""Pauses: what they hold, from when, and what they leave alone."""

from __future__ import annotations

import pytest

from rowsweep.errors import InvalidOption
from rowsweep.queue.records import claim_of
from rowsweep.queue.verdicts import Done
from tests.queue.world import World, ids_of


def due_queues(world: World, *queues: str) -> list[str]:
    """Answer what an idle worker's look finds due."""
    return world.workers.look(queues=queues or ("default",), names=["mail", "other"], announce=None).due_queues


def test_a_paused_queue_is_not_claimed_from_and_not_seen_by_a_look(world: World) -> None:
    """S-099, D-19: the rows stay `ready` and are counted so, enqueues are taken."""
    world.enqueue()
    world.pauses.pause(queue="default", reason="the shop is closed", by="ann")
    later = world.enqueue()
    assert world.claim("mail", "other").jobs == []
    assert due_queues(world) == []
    assert world.job(later).state == "ready"
    (stats,) = world.jobs.stats()
    assert (stats.ready, stats.due) == (2, 2)


@pytest.mark.parametrize(
    ("queue", "name", "free"),
    [
        ("default", None, {("slow", "mail"), ("slow", "other")}),
        (None, "mail", {("default", "other"), ("slow", "other")}),
        ("default", "mail", {("default", "other"), ("slow", "mail"), ("slow", "other")}),
    ],
)
def test_a_pause_holds_a_queue_a_name_or_a_name_on_one_queue(
    world: World, queue: str | None, name: str | None, free: set[tuple[str, str]]
) -> None:
    """D-19."""
    for at in ("default", "slow"):
        for job in ("mail", "other"):
            world.enqueue(job, queue=at)
    world.pauses.pause(queue=queue, name=name)
    claimed = [job for at in ("default", "slow") for job in world.claim("mail", "other", queue=at).jobs]
    assert {(job.queue, job.name) for job in claimed} == free


def test_resumed_rows_are_claimed_in_their_order(world: World) -> None:
    """D-19: with exactly the pair that was paused."""
    ids = [world.enqueue() for _ in range(3)]
    world.pauses.pause(queue="default", name="mail")
    assert world.pauses.resume(queue="default") is False
    assert world.pauses.resume(name="mail") is False
    assert world.claim().jobs == []
    assert world.pauses.resume(queue="default", name="mail") is True
    assert due_queues(world) == ["default"]
    assert ids_of(world.claim().jobs) == ids


def test_paused_twice_and_resumed_twice_is_once(world: World) -> None:
    """D-19: idempotent both; the first pause stands."""
    first = world.pauses.pause(queue="default", reason="one", by="ann")
    world.hands.pass_time(60)
    again = world.pauses.pause(queue="default", reason="two", by="bob")
    assert (again.reason, again.paused_by) == (first.reason, first.paused_by) == ("one", "ann")
    assert len(world.pauses.list()) == 1
    assert world.pauses.resume(queue="default") is True
    assert world.pauses.resume(queue="default") is False
    assert world.pauses.list() == []


def test_pauses_are_listed_the_oldest_first(world: World) -> None:
    """S-402."""
    world.pauses.pause(name="mail", reason="r")
    world.hands.pass_time(60)
    world.pauses.pause(queue="slow", name="mail", by="ann")
    listed = world.pauses.list()
    assert [(pause.queue, pause.name) for pause in listed] == [(None, "mail"), ("slow", "mail")]
    assert (listed[0].reason, listed[1].paused_by) == ("r", "ann")
    assert listed[0].paused_at < listed[1].paused_at


@pytest.mark.parametrize("pair", [{}, {"queue": ""}, {"queue": "", "name": "mail"}, {"name": ""}])
def test_a_pause_of_everything_is_refused(world: World, pair: dict[str, str | None]) -> None:
    """D-19: at least one of the two."""
    with pytest.raises(InvalidOption):
        world.pauses.pause(**pair)
    with pytest.raises(InvalidOption):
        world.pauses.resume(**pair)


def test_a_claim_already_held_goes_on(world: World) -> None:
    """D-19: renewed and settled as ever; a lapsed one is not taken again while the pause stands."""
    held, lapsed = world.running(), world.running()
    world.pauses.pause(queue="default")
    assert world.jobs.renew([claim_of(held)], visibility_seconds=30) == [True]
    assert world.settle(held, Done()) is True
    world.hands.pass_time(31)
    assert world.claim().jobs == []
    world.pauses.resume(queue="default")
    assert ids_of(world.claim().jobs) == [lapsed.id]


def test_a_pause_takes_no_row_s_time(world: World) -> None:
    """S-099: never a column on queued rows."""
    job_id = world.enqueue()
    before = world.job(job_id)
    world.pauses.pause(name="mail")
    assert world.job(job_id) == before
