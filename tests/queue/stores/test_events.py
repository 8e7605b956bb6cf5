"""Events: kept until they expire, found by the waits that ask for them, waking the runs that are parked on them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from rowsweep.errors import InvalidOption, LeaseLost
from rowsweep.queue.records import claim_of
from rowsweep.queue.verdicts import Park, Retry
from tests.queue.world import ERROR, World, event_in, fresh_id, is_near, new_event


def test_an_event_is_answered_as_it_is_kept(world: World) -> None:
    """S-172, S-180, S-169: stamped by the database's clock, its time to live counted from there."""
    asked = new_event("paid", key="order-7", payload={"total": 12.5, "at": None}, ttl_seconds=60.0)
    event = world.events.publish(asked).event
    assert (event.id, event.name, event.key, event.payload) == (asked.id, "paid", "order-7", asked.payload)
    assert is_near(event.published_at, world.hands.now())
    assert event.expires_at == event.published_at + timedelta(seconds=60)
    assert world.events.list() == [event]
    assert is_near(world.events.now(), world.hands.now())


def test_the_earliest_since_an_instant_is_found(world: World) -> None:
    """S-180, N-047: by name and key; no key matches only events without one."""
    before = world.events.now()
    world.publish("paid", key="b")
    first = world.publish("paid").event
    world.publish("paid")
    world.publish("sent")
    assert world.events.find("paid", since=before) == first
    later = world.events.find("paid", since=first.published_at + timedelta(microseconds=1))
    assert later is not None
    assert later.published_at > first.published_at
    assert world.events.find("paid", key="c", since=before) is None
    assert world.events.find("nothing", since=before) is None


def test_events_are_listed_newest_first(world: World) -> None:
    """S-174."""
    ids = [world.publish("paid", key=str(at)).event.id for at in range(3)]
    world.publish("sent")
    assert [event.id for event in world.events.list(name="paid")] == ids[::-1]
    assert [event.id for event in world.events.list(name="paid", limit=2)] == ids[:0:-1]
    assert [event.id for event in world.events.list(key="1")] == [ids[1]]
    assert world.events.list(limit=0) == []
    with pytest.raises(InvalidOption):
        world.events.list(limit=-1)


def test_an_expired_event_is_found_no_more_and_purged(world: World) -> None:
    """S-173, S-176."""
    before = world.events.now()
    world.publish(ttl_seconds=10.0)
    kept = world.publish("sent", ttl_seconds=100.0).event
    world.hands.pass_time(11)
    assert world.events.find("paid", since=before - timedelta(seconds=60)) is None
    assert [event.id for event in world.events.list()] == [kept.id]
    job = world.running()
    assert world.wait(job, since=before - timedelta(seconds=60)).status == "waiting"
    assert world.events.purge_expired() == 1
    assert world.events.purge_expired() == 0
    assert world.events.purge_expired(world.events.now() + timedelta(seconds=100)) == 1
    assert world.events.list() == []


def test_a_wait_begins_once_and_keeps_what_it_first_asked(world: World) -> None:
    """D-28: event, key, timeout, and as `started_at` when it first asked."""
    job = world.running()
    begun = world.wait(job, key="order-7", timeout_seconds=60.0)
    assert (begun.kind, begun.status, begun.event, begun.correlation_key) == ("event", "waiting", "paid", "order-7")
    assert is_near(begun.started_at, world.hands.now())
    assert begun.wake_at == begun.started_at + timedelta(seconds=60)
    world.hands.pass_time(30)
    again = world.wait(job, key="order-7", timeout_seconds=500.0)
    assert again.status == "waiting"
    assert again.wake_at == again.started_at + timedelta(seconds=60)
    assert is_near(again.started_at, world.hands.now() - timedelta(seconds=30))
    assert world.steps.list(job.run_id) == [again]


def test_an_event_published_after_the_question_is_the_answer(world: World) -> None:
    """N-047, S-167: the earliest one, stored as the step's output; the one before the question is not."""
    world.publish(payload="before")
    job = world.running()
    assert world.wait(job).status == "waiting"
    first = world.publish(payload={"n": 1}).event
    world.publish(payload={"n": 2})
    world.publish(key="other")
    answer = world.wait(job)
    assert event_in(answer) == first
    assert is_near(answer.completed_at, world.hands.now())
    kept = world.steps.get(job.run_id, "wait")
    assert kept == answer


def test_an_event_is_not_used_up(world: World) -> None:
    """N-047: every wait that asked before it is answered by it."""
    jobs = [world.running() for _ in range(3)]
    for job in jobs:
        assert world.wait(job).status == "waiting"
    event = world.publish().event
    assert [event_in(world.wait(job)) for job in jobs] == [event] * 3


@pytest.mark.parametrize(("asked", "published"), [(None, "a"), ("a", None), ("a", "b"), ("", None)])
def test_another_key_is_another_event(world: World, asked: str | None, published: str | None) -> None:
    """N-047: without a key only events without one."""
    job = world.running()
    world.wait(job, key=asked)
    world.publish(key=published)
    assert world.wait(job, key=asked).status == "waiting"


def test_since_moves_the_question_back(world: World) -> None:
    """N-047, S-170."""
    asked_at = world.events.now()
    event = world.publish().event
    world.hands.pass_time(5)
    early, late = world.running(), world.running()
    assert world.wait(late).status == "waiting"
    since = asked_at - timedelta(seconds=5)
    assert event_in(world.wait(early, since=since)).id == event.id


def test_a_timeout_is_declared_by_the_same_clock(world: World) -> None:
    """S-171, S-156: stored, so that a replay answers it again."""
    job = world.running()
    world.wait(job, timeout_seconds=60.0)
    world.hands.pass_time(59)
    assert world.wait(job).status == "waiting"
    world.hands.pass_time(2)
    over = world.wait(job)
    assert (over.status, over.output) == ("timed-out", None)
    assert is_near(over.completed_at, world.hands.now())


def test_an_event_that_is_there_comes_before_a_timeout(world: World) -> None:
    """S-171: a worker that was away does not turn what came into a timeout."""
    job = world.running()
    world.wait(job, timeout_seconds=60.0)
    event = world.publish().event
    world.hands.pass_time(120)
    assert event_in(world.wait(job)).id == event.id


def test_a_wait_without_a_timeout_never_times_out(world: World) -> None:
    """D-28."""
    job = world.running()
    assert world.wait(job, timeout_seconds=None).wake_at is None
    world.hands.pass_time(10 * 365 * 86_400)
    assert world.wait(job, timeout_seconds=None).status == "waiting"


def test_a_superseded_run_begins_no_wait(world: World) -> None:
    """S-159."""
    job = world.running()
    stale = replace(job, claims=job.claims + 1)
    with pytest.raises(LeaseLost):
        world.wait(stale)
    assert world.steps.list(job.run_id) == []


def test_publishing_makes_the_parked_runs_due(world: World) -> None:
    """N-048, S-166: those of that name and key, and no other."""
    mine, keyed, other = world.parked(), world.parked(key="a"), world.parked(event="sent")
    assert world.claim().jobs == []
    assert world.publish().due_queues == ["default"]
    assert [job.id for job in world.claim().jobs] == [mine.id]
    assert world.publish(key="a").due_queues == ["default"]
    assert [job.id for job in world.claim().jobs] == [keyed.id]
    assert world.job(other.id).state == "suspended"
    assert world.publish(key="b").due_queues == []


def test_a_woken_run_is_due_once_more_only_with_another_event(world: World) -> None:
    """N-048: a run that is due already is left as it is."""
    job = world.parked()
    world.publish()
    due_at = world.job(job.id).run_at
    assert world.publish().due_queues == []
    assert world.job(job.id).run_at == due_at


def test_a_finished_or_cancelled_run_is_not_woken(world: World) -> None:
    """N-048."""
    job = world.parked()
    world.steering.cancel(job.id)
    assert world.publish().due_queues == []
    assert world.job(job.id).state == "cancelled"


def test_an_event_that_meets_a_run_on_its_way_to_park_makes_it_due_there(world: World) -> None:
    """N-048: asked, published, parked, in this order; no poll is needed."""
    job = world.running()
    step = world.wait(job)
    assert world.publish().due_queues == []
    assert world.settle(job, Park(wake_at=step.wake_at)) is True
    (taken,) = world.claim().jobs
    assert taken.id == job.id
    assert event_in(world.wait(taken)).name == "paid"


def test_an_event_that_meets_a_running_run_moves_no_other_verdict(world: World) -> None:
    """N-033: a retry waits for its own delay."""
    job = world.running()
    world.wait(job)
    world.publish()
    world.settle(job, Retry(delay_seconds=60.0, error=ERROR))
    assert world.claim().jobs == []
    world.hands.pass_time(61)
    again = world.take()
    assert event_in(world.wait(again)).name == "paid"


def test_a_publication_that_rolls_back_never_was(world: World) -> None:
    """N-048: event and wake are the transaction's."""
    job = world.parked()
    with suppress(ZeroDivisionError), world.driver.transaction() as tx:
        assert tx.stores.events is not None
        assert tx.stores.events.publish(new_event()).due_queues == ["default"]
        raise ZeroDivisionError
    assert world.job(job.id).run_at > world.hands.now()
    assert world.events.list() == []
    assert world.claim().jobs == []


def test_a_poll_makes_due_what_no_publication_woke(world: World) -> None:
    """N-048, S-166: one statement for all parked runs of these names, on the look; it claims nothing."""
    job, other = world.parked(), world.parked(event="sent")
    world.publish()
    world.hands.edit(job.id, run_at=world.hands.now() + timedelta(seconds=600))
    assert world.workers.look(queues=["default"], names=["mail"], announce=None).due_queues == []
    look = world.workers.look(queues=["default"], names=["mail"], announce=None, poll=["other"])
    assert look.due_queues == []
    look = world.workers.look(queues=["default"], names=["mail"], announce=None, poll=["mail"])
    assert look.due_queues == ["default"]
    assert world.job(job.id).state == "suspended"
    assert [taken.id for taken in world.claim().jobs] == [job.id]
    assert world.job(other.id).state == "suspended"


def test_removing_a_job_removes_its_waits(world: World) -> None:
    """S-165."""
    job = world.parked()
    world.steering.cancel(job.id)
    assert world.steering.remove(job.id)
    assert world.steps.list(job.run_id) == []
    assert world.publish().due_queues == []


def test_a_wait_of_an_unknown_run_is_refused(world: World) -> None:
    """S-159."""
    job = world.running()
    with pytest.raises(LeaseLost):
        world.wait(replace(job, id=fresh_id()))
    assert claim_of(job).claim == 1
