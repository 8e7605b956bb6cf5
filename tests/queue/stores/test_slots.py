"""Fleet slots: who gets one, how it is kept, and what becomes of the claim it is taken from."""

from __future__ import annotations

import threading

import pytest

from rowsweep.errors import LeaseLost
from rowsweep.queue.records import Claim, claim_of
from rowsweep.queue.stores.holds import Slot
from rowsweep.queue.verdicts import Done
from tests.queue.world import World, fresh_id, step_put

KEY = "job:mail"


def some_claim(worker: str = "w1", number: int = 1) -> Claim:
    """Answer a claim of a job that no row stands for."""
    return Claim(job_id=fresh_id(), worker_id=worker, claim=number)


def take(world: World, claim: Claim, *, key: str = KEY, limit: int = 1, ttl: float = 30.0) -> Slot | None:
    """Ask for a slot."""
    return world.slots.acquire(key, limit=limit, ttl_seconds=ttl, claim=claim)


def taken(world: World, claim: Claim, *, limit: int = 1) -> Slot:
    """Ask for a slot that must be had."""
    slot = take(world, claim, limit=limit)
    assert slot is not None
    return slot


def test_a_cap_gives_out_that_many_slots_and_no_more(world: World) -> None:
    """S-333: a slot or None; each slot once."""
    slots = [taken(world, some_claim(), limit=3) for _ in range(3)]
    assert sorted(slot.slot for slot in slots) == [0, 1, 2]
    assert take(world, some_claim(), limit=3) is None
    assert take(world, some_claim(), key="job:other") is not None


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_nothing_gives_none(world: World, limit: int) -> None:
    """S-333."""
    assert take(world, some_claim(), limit=limit) is None
    assert world.slots.holders(KEY) == []


def test_a_slot_says_who_holds_it_and_until_when(world: World) -> None:
    """S-333, N-039: the holder is worker, job and claim."""
    claim = some_claim("box:1", number=7)
    taken(world, claim)
    (holder,) = world.slots.holders(KEY)
    assert (holder.slot, holder.job_id, holder.holder) == (0, claim.job_id, f"box:1:{claim.job_id}:7")
    assert (holder.expires_at - world.hands.now()).total_seconds() == pytest.approx(30, abs=5)


def test_a_released_slot_is_free_at_once(world: World) -> None:
    """S-336: a release is fenced on the holder."""
    slot = taken(world, some_claim())
    stranger = Slot(lease_key=slot.lease_key, slot=slot.slot, claim=some_claim())
    assert world.slots.release([stranger]) == [False]
    assert world.slots.release([slot]) == [True]
    assert world.slots.release([slot]) == [False]
    assert take(world, some_claim()) is not None


def test_a_renewal_extends_the_slots_of_their_holders_only(world: World) -> None:
    """S-333, S-336: one statement, a boolean per slot."""
    mine = taken(world, some_claim(), limit=2)
    gone = taken(world, some_claim(), limit=2)
    world.slots.release([gone])
    stranger = Slot(lease_key=KEY, slot=mine.slot, claim=some_claim())
    world.hands.pass_time(20)
    assert world.slots.renew([gone, mine, stranger], ttl_seconds=30) == [False, True, False]
    (holder,) = world.slots.holders(KEY)
    assert (holder.expires_at - world.hands.now()).total_seconds() == pytest.approx(30, abs=5)
    assert world.slots.renew([], ttl_seconds=30) == world.slots.release([]) == []


def test_an_expired_slot_is_not_renewed_and_goes_to_the_next(world: World) -> None:
    """S-332, S-336: freed by its TTL when the worker is killed; late is too late."""
    slot = taken(world, some_claim())
    world.hands.pass_time(31)
    assert world.slots.holders(KEY) == []
    assert world.slots.renew([slot], ttl_seconds=30) == [False]
    next_one = taken(world, some_claim())
    assert next_one.slot == slot.slot
    assert world.slots.release([slot]) == [False]
    assert world.slots.renew([next_one], ttl_seconds=30) == [True]


def test_asked_again_for_one_claim_it_answers_the_slot_that_claim_has(world: World) -> None:
    """N-039: an answer lost on the way costs no slot."""
    claim = some_claim()
    first = taken(world, claim, limit=3)
    assert taken(world, claim, limit=3) == first
    assert len(world.slots.holders(KEY)) == 1


def test_two_claims_of_one_job_hold_slots_of_their_own(world: World) -> None:
    """S-339: a re-claim by the same worker overwrites nothing."""
    first = some_claim()
    second = Claim(job_id=first.job_id, worker_id=first.worker_id, claim=2)
    one, two = taken(world, first, limit=2), taken(world, second, limit=2)
    assert one.slot != two.slot
    assert world.slots.release([one]) == [True]
    assert [holder.slot for holder in world.slots.holders(KEY)] == [two.slot]


def test_slots_above_a_lowered_limit_are_not_given_out_again(world: World) -> None:
    """N-039."""
    slots = {slot.slot: slot for slot in (taken(world, some_claim(), limit=3) for _ in range(3))}
    world.slots.release([slots[2], slots[1]])
    assert take(world, some_claim(), limit=1) is None
    world.slots.release([slots[0]])
    assert taken(world, some_claim(), limit=1).slot == 0


def test_taking_an_expired_slot_ends_the_claim_it_was_held_for(world: World) -> None:
    """S-332, S-102: a holder that wakes past its TTL writes nothing any more, and its job is delivered again."""
    stopped = world.running()
    former = taken(world, claim_of(stopped))
    other = world.running()
    world.hands.pass_time(31)
    taken(world, claim_of(other))
    with pytest.raises(LeaseLost):
        world.steps.put(step_put(stopped), claim_of(stopped))
    assert world.jobs.renew([claim_of(stopped)], visibility_seconds=30) == [False]
    assert world.settle(stopped, Done()) is False
    assert world.slots.release([former]) == [False]
    assert stopped.id in [job.id for job in world.claim(limit=5).jobs]


def test_taking_it_for_the_job_s_own_next_claim_leaves_that_claim_alone(world: World) -> None:
    """S-332: the lapsed claim is over already; the new one is not its former holder's."""
    first = world.running()
    taken(world, claim_of(first))
    world.hands.pass_time(31)
    again = world.take(worker="w2")
    assert again.id == first.id
    taken(world, claim_of(again))
    assert world.settle(again, Done()) is True


def test_a_slot_of_a_claim_that_was_settled_takes_nobody_else_s(world: World) -> None:
    """N-039: a holder whose release was lost ends by the TTL, and its row is left as it ended."""
    job = world.running()
    taken(world, claim_of(job))
    world.settle(job, Done())
    world.hands.pass_time(31)
    assert take(world, some_claim()) is not None
    assert world.job(job.id).state == "done"
    assert world.job(job.id).claims == 1


def test_an_expired_slot_is_taken_only_after_the_unused_ones(world: World) -> None:
    """N-039: a claim that still stands is ended only where there is no other way."""
    stopped = world.running()
    taken(world, claim_of(stopped), limit=2)
    world.hands.pass_time(31)
    taken(world, some_claim(), limit=2)
    assert world.settle(stopped, Done()) is True


def asked_at_once(world: World, times: int, *, limit: int) -> list[Slot]:
    """Ask so many times from threads of their own; answer the slots that were got."""
    answers: list[Slot | None] = []
    barrier = threading.Barrier(times)

    def ask() -> None:
        barrier.wait(10)
        answers.append(take(world, some_claim(), limit=limit))

    threads = [threading.Thread(target=ask) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(answers) == times
    return [slot for slot in answers if slot is not None]


def test_many_that_ask_at_once_get_as_many_slots_as_there_are(world: World) -> None:
    """N-039, S-081: a call that lost its slot to another asks again, so a cap refuses nobody too early."""
    for _ in range(10):
        got = asked_at_once(world, 6, limit=4)
        assert sorted(slot.slot for slot in got) == [0, 1, 2, 3]
        world.slots.release(got)


def test_expired_slots_asked_for_at_once_go_to_one_each(world: World) -> None:
    """N-039: by the primary key's conflict alone."""
    for _ in range(5):
        for _ in range(3):
            taken(world, some_claim(), limit=3)
        world.hands.pass_time(31)
        assert sorted(slot.slot for slot in asked_at_once(world, 5, limit=3)) == [0, 1, 2]
        world.hands.pass_time(31)


def test_a_transaction_that_rolls_back_gives_its_slot_back(world: World) -> None:
    """S-057: slots are part of the unit of work."""
    with pytest.raises(KeyboardInterrupt), world.driver.transaction() as tx:  # noqa: PT012 - a transaction that the raise ends
        assert tx.stores.slots is not None
        assert tx.stores.slots.acquire(KEY, limit=1, ttl_seconds=30, claim=some_claim()) is not None
        raise KeyboardInterrupt
    assert world.slots.holders(KEY) == []
