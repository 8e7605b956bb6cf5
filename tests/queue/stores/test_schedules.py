"""Watermarks, the one statement that fires an occurrence, and the leader's lease."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from rowsweep.jobs.request import NewJob
from rowsweep.queue.stores.schedules import LeaderStore, ScheduledFire, ScheduleStore
from tests.queue.world import World, is_near, new_job

T = TypeVar("T")
NINE = datetime(2025, 1, 31, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


def present(store: T | None) -> T:
    assert store is not None
    return store


def schedules(world: World) -> ScheduleStore:
    return present(world.driver.stores().schedules)


def leader(world: World) -> LeaderStore:
    return present(world.driver.stores().leader)


def occurrence(at: datetime, *jobs: NewJob, task: str = "hourly", watermark: datetime | None = None) -> ScheduledFire:
    return ScheduledFire(task=task, occurrence_at=at, watermark_at=watermark or at, jobs=jobs)


def test_a_task_seen_for_the_first_time_is_armed_once(world: World) -> None:
    """S-235, S-242: another process that armed it first is believed."""
    store = schedules(world)
    assert store.last_fired_at("hourly") is None
    assert store.mark_fired("hourly", NINE) == NINE
    assert store.mark_fired("hourly", NINE + HOUR) == NINE
    store.mark_fired("daily", NINE + HOUR)
    assert store.last_fired_at("hourly") == NINE
    assert store.watermarks() == {"hourly": NINE, "daily": NINE + HOUR}


def test_instants_come_back_in_utc(world: World) -> None:
    """S-005."""
    schedules(world).mark_fired("hourly", NINE)
    at = schedules(world).last_fired_at("hourly")
    assert at is not None
    assert at.tzinfo is UTC


def test_an_occurrence_moves_the_watermark_and_inserts_its_jobs_in_order(world: World) -> None:
    """S-235, S-247."""
    store = schedules(world)
    store.mark_fired("hourly", NINE - HOUR)
    first, second = new_job("b"), new_job("a")
    results = store.fire(occurrence(NINE, first, second))
    assert [(present(r).id, present(r).deduplicated) for r in present(results)] == [
        (first.id, False),
        (second.id, False),
    ]
    assert store.last_fired_at("hourly") == NINE
    assert {world.job(first.id).state, world.job(second.id).state} == {"ready"}


@pytest.mark.parametrize("behind", [timedelta(0), HOUR])
def test_an_occurrence_that_is_not_ahead_of_the_watermark_does_nothing(world: World, behind: timedelta) -> None:
    """S-247, N-099: the fence."""
    store = schedules(world)
    store.mark_fired("hourly", NINE)
    assert store.fire(occurrence(NINE - behind, new_job())) is None
    assert store.last_fired_at("hourly") == NINE
    assert world.jobs.stats() == []


def test_a_task_that_was_never_armed_fires_nothing(world: World) -> None:
    """S-242, S-247."""
    assert schedules(world).fire(occurrence(NINE, new_job())) is None
    assert schedules(world).last_fired_at("hourly") is None
    assert world.jobs.stats() == []


def test_the_watermark_may_pass_the_occurrence_but_never_stay_behind_it(world: World) -> None:
    """S-244: what else was missed is dropped in the fire itself."""
    store = schedules(world)
    store.mark_fired("hourly", NINE - HOUR)
    assert store.fire(occurrence(NINE, new_job(), watermark=NINE + 5 * HOUR)) is not None
    assert store.last_fired_at("hourly") == NINE + 5 * HOUR
    assert store.fire(occurrence(NINE + HOUR, new_job())) is None
    assert store.fire(occurrence(NINE + 6 * HOUR, watermark=NINE)) == []
    assert store.last_fired_at("hourly") == NINE + 6 * HOUR


@pytest.mark.parametrize("off", [-HOUR, timedelta(microseconds=1)])
def test_an_occurrence_decided_on_another_watermark_does_nothing(world: World, off: timedelta) -> None:
    """S-247, N-099: neither where it was moved, nor where a server has lost its last movement."""
    store = schedules(world)
    standing = store.mark_fired("hourly", NINE - 3 * HOUR)
    fire = replace(occurrence(NINE, new_job()), former_at=standing + off)
    assert store.fire(fire) is None
    assert store.last_fired_at("hourly") == standing
    assert store.fire(replace(fire, former_at=standing)) is not None
    assert store.last_fired_at("hourly") == NINE


def test_an_occurrence_without_jobs_moves_the_watermark_alone(world: World) -> None:
    """S-247."""
    schedules(world).mark_fired("hourly", NINE - HOUR)
    assert schedules(world).fire(occurrence(NINE)) == []
    assert schedules(world).last_fired_at("hourly") == NINE


def test_a_live_job_with_the_key_answers_for_the_occurrence(world: World) -> None:
    """S-047, S-248, S-249."""
    standing = world.enqueue(idempotency_key="hourly:2025-01-31T09:00:00Z:0")
    schedules(world).mark_fired("hourly", NINE - HOUR)
    again, other = new_job(idempotency_key="hourly:2025-01-31T09:00:00Z:0"), new_job()
    results = present(schedules(world).fire(occurrence(NINE, again, other)))
    assert [(present(r).id, present(r).deduplicated) for r in results] == [(standing, True), (other.id, False)]


def test_a_job_that_cannot_be_inserted_leaves_the_watermark(world: World) -> None:
    """S-247: both or neither."""
    store = schedules(world)
    taken = world.enqueue()
    store.mark_fired("hourly", NINE - HOUR)
    with pytest.raises(Exception, match=str(taken)):
        store.fire(occurrence(NINE, new_job(), new_job(id=taken, idempotency_key="another")))
    assert store.last_fired_at("hourly") == NINE - HOUR
    assert [stats.ready for stats in world.jobs.stats()] == [1]


def test_dispatchers_that_fire_the_same_occurrence_at_once_fire_it_once(world: World) -> None:
    """S-247, S-270: whoever waits for the row finds it moved."""
    store, threads = schedules(world), 6
    for hour in range(20):
        store.mark_fired("hourly", NINE - HOUR)
        at, landed, gate = NINE + hour * HOUR, list[Any](), threading.Barrier(threads)

        def fire(at: datetime = at, landed: list[Any] = landed, gate: threading.Barrier = gate) -> None:
            gate.wait()
            landed.append(store.fire(occurrence(at, new_job(idempotency_key=f"{at}"))))

        running = [threading.Thread(target=fire) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert sum(answer is not None for answer in landed) == 1
    assert [stats.ready for stats in world.jobs.stats()] == [20]


def test_a_fire_in_a_transaction_that_is_rolled_back_never_was(world: World) -> None:
    """S-057, S-247."""
    schedules(world).mark_fired("hourly", NINE - HOUR)

    def fire_and_fail() -> None:
        with world.driver.transaction() as tx:
            assert present(tx.stores.schedules).fire(occurrence(NINE, new_job())) is not None
            raise LookupError

    with pytest.raises(LookupError):
        fire_and_fail()
    assert schedules(world).last_fired_at("hourly") == NINE - HOUR
    assert world.jobs.stats() == []


def test_one_holder_at_a_time_leads(world: World) -> None:
    """S-255."""
    store = leader(world)
    assert store.get("scheduler") is None
    assert store.acquire("scheduler", "a", lease_seconds=30)
    assert not store.acquire("scheduler", "b", lease_seconds=30)
    held = present(store.get("scheduler"))
    assert (held.name, held.holder) == ("scheduler", "a")
    assert is_near(held.expires_at, world.hands.now() + timedelta(seconds=30))
    assert store.acquire("another", "b", lease_seconds=30)


def test_a_holder_renews_its_lease_and_leads_since_it_took_it(world: World) -> None:
    """S-258."""
    store = leader(world)
    store.acquire("scheduler", "a", lease_seconds=30)
    world.hands.pass_time(20)
    since = present(store.get("scheduler")).acquired_at
    assert store.acquire("scheduler", "a", lease_seconds=30)
    world.hands.pass_time(20)
    assert not store.acquire("scheduler", "b", lease_seconds=30)
    assert is_near(present(store.get("scheduler")).acquired_at, since - timedelta(seconds=20), within_seconds=21)


def test_an_expired_lease_is_anybodys(world: World) -> None:
    """S-255."""
    store = leader(world)
    store.acquire("scheduler", "a", lease_seconds=30)
    world.hands.pass_time(31)
    assert store.get("scheduler") is None
    assert store.acquire("scheduler", "b", lease_seconds=30)
    assert not store.acquire("scheduler", "a", lease_seconds=30)
    assert is_near(present(store.get("scheduler")).acquired_at, world.hands.now())


def test_only_the_holder_gives_the_lease_back(world: World) -> None:
    """S-258, S-260."""
    store = leader(world)
    store.acquire("scheduler", "a", lease_seconds=30)
    assert not store.release("scheduler", "b")
    assert store.release("scheduler", "a")
    assert not store.release("scheduler", "a")
    assert store.acquire("scheduler", "b", lease_seconds=30)
