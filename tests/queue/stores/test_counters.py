"""Counters: moved by the statement that ends a run, read over their shards, and folded into coarser tiers once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rowsweep.errors import InvalidOption
from rowsweep.queue.records import Claim, claim_of
from rowsweep.queue.stores.counters import CounterBucket, CounterTier, RollUp
from rowsweep.queue.stores.schedules import Lease
from rowsweep.queue.verdicts import (
    Bury,
    Defer,
    Done,
    Drop,
    GiveBack,
    Park,
    Refuse,
    Retry,
    Settlement,
    Shed,
    Verdict,
)
from tests.queue.conftest import MemoryHands, empty_world
from tests.queue.world import ERROR, World, fresh_id

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NAIVE = datetime(2025, 1, 1, tzinfo=UTC).replace(tzinfo=None)
COUNTED: list[tuple[Verdict, str | None]] = [
    (Done(), "completed"),
    (Retry(delay_seconds=1, error=ERROR), "retried"),
    (Defer(delay_seconds=1, error=ERROR), "deferred"),
    (Bury(error=ERROR), "dead"),
    (Drop(error=ERROR), "dropped"),
    (Refuse(error=ERROR), "refused"),
    (Park(delay_seconds=60), None),
    (Shed(delay_seconds=1, reason="full"), None),
    (GiveBack(), None),
]
FIGURES = ("completed", "retried", "deferred", "dead", "dropped", "refused")


def figures(bucket: CounterBucket) -> dict[str, int]:
    """Answer the figures of a bucket that are not zero."""
    return {name: getattr(bucket, name) for name in (*FIGURES, "run_ms", "max_run_ms") if getattr(bucket, name)}


def total(world: World, name: str = "mail", tier: CounterTier = "minute") -> dict[str, int]:
    """Add up every bucket of a name: a test may cross a minute's end."""
    sums: dict[str, int] = {}
    for bucket in world.counters.list(tier=tier, name=name):
        sums = {key: sums.get(key, 0) + figures(bucket).get(key, 0) for key in sums | figures(bucket)}
    return sums


def midnight(world: World) -> datetime:
    """Answer the beginning of the driver's day."""
    return world.hands.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def minute(at: datetime, name: str = "mail", **changes: Any) -> CounterBucket:
    """Answer a minute's bucket in which one run completed."""
    given_: dict[str, Any] = {"tier": "minute", "completed": 1, "run_ms": 10, "max_run_ms": 10}
    return CounterBucket(bucket_at=at, name=name, **(given_ | changes))


@pytest.mark.parametrize(("verdict", "counter"), COUNTED, ids=[type(verdict).__name__ for verdict, _ in COUNTED])
def test_a_verdict_moves_the_counter_that_its_table_says(world: World, verdict: Verdict, counter: str | None) -> None:
    """S-404, S-405, S-312, N-033: a shed, a suspension and a hand-back add nothing."""
    assert world.settle(world.running(), verdict, duration_ms=250) is True
    ran = {"run_ms": 250, "max_run_ms": 250} if counter == "completed" else {}
    assert total(world) == ({} if counter is None else {counter: 1, **ran})


def test_the_run_s_time_is_rounded_added_up_and_its_longest_kept(world: World) -> None:
    """S-110, D-20: over completed runs only."""
    for milliseconds in (10.4, 30.6, 20):
        world.settle(world.running(), Done(), duration_ms=milliseconds)
    world.settle(world.running(), Bury(error=ERROR), duration_ms=9_000)
    assert total(world) == {"completed": 3, "dead": 1, "run_ms": 61, "max_run_ms": 31}


def test_a_group_counts_only_what_landed(world: World) -> None:
    """N-034, S-404: counts cannot disagree with rows."""
    jobs = [world.running() for _ in range(3)] + [world.running("post")]
    group = [Settlement(claim=claim_of(job), verdict=Done(), duration_ms=1) for job in jobs]
    group.insert(1, Settlement(claim=Claim(job_id=fresh_id(), worker_id="w1", claim=1), verdict=Done()))
    group.insert(3, replace(group[0], claim=replace(group[0].claim, claim=7)))
    assert world.jobs.settle(group[:3]) == [True, False, True]
    assert world.jobs.settle(group[3:]) == [False, True, True]
    assert (total(world)["completed"], total(world, "post")["completed"]) == (3, 1)


def test_a_settlement_sent_again_is_counted_once(world: World) -> None:
    """N-036, S-404."""
    job = world.running()
    for _ in range(2):
        again = [Settlement(claim=claim_of(job), verdict=Done())]
        assert world.jobs.settle(again, resent=True) == [True]
    assert total(world) == {"completed": 1}


def test_what_is_rolled_back_was_not_counted(world: World) -> None:
    """S-404: the counter moves in the transaction of the row."""
    job = world.running()

    def settle_and_fail() -> None:
        with world.driver.transaction() as tx:
            assert tx.stores.jobs.settle([Settlement(claim=claim_of(job), verdict=Done())]) == [True]
            raise KeyError

    with pytest.raises(KeyError):
        settle_and_fail()
    assert total(world) == {}


@pytest.mark.parametrize(("drops", "counter"), [(False, "dead"), (True, "dropped")])
def test_a_burial_is_counted_by_the_claim(world: World, drops: bool, counter: str) -> None:
    """S-093, S-096, S-406."""
    world.running(max_attempts=1)
    world.hands.pass_time(31)
    assert len(world.claim(drop_exhausted=["mail"] if drops else []).buried) == 1
    assert total(world) == {counter: 1}


def test_a_read_adds_the_shards_up(world: World) -> None:
    """D-20: a shard only keeps settlers off one row."""
    at = midnight(world) - DAY
    for shard, ran in enumerate((5, 20, 10)):
        world.hands.put_counter(minute(at, run_ms=ran, max_run_ms=ran), shard=shard)
    assert world.counters.list() == [minute(at, completed=3, run_ms=35, max_run_ms=20)]


def test_buckets_are_read_the_newest_first_by_name_and_within_bounds(world: World) -> None:
    """D-40: name, since and tier; an instant takes in the bucket that it lies in."""
    at = midnight(world) - DAY
    for offset in (3, 1, 2):
        for name in ("post", "mail"):
            world.hands.put_counter(minute(at + offset * MINUTE, name))
    expected = [(at + offset * MINUTE, name) for offset in (3, 2, 1) for name in ("mail", "post")]

    def read(**given_: Any) -> list[tuple[datetime, str]]:
        return [(bucket.bucket_at, bucket.name) for bucket in world.counters.list(**given_)]

    assert read() == expected
    assert read(limit=3) == expected[:3]
    assert read(limit=0) == []
    assert read(name="post") == [one for one in expected if one[1] == "post"]
    assert read(since=at + timedelta(minutes=2, seconds=59)) == expected[:4]
    assert read(since=at + 4 * MINUTE) == []
    assert read(tier="hour", since=at + timedelta(minutes=59)) == [(at, "mail"), (at, "post")]
    assert read(tier="day", since=at + HOUR) == [(at, "mail"), (at, "post")]


@pytest.mark.parametrize(
    "given_", [{"tier": "week"}, {"limit": -1}, {"limit": 2**63}, {"since": NAIVE}, {"since": "1h"}], ids=str
)
def test_a_read_that_asks_for_what_there_is_not_is_refused(world: World, given_: dict[str, Any]) -> None:
    """D-37, S-355: a bare instant would be read in some session's zone."""
    with pytest.raises(InvalidOption):
        world.counters.list(**given_)


def test_a_bucket_is_folded_once_it_is_closed_and_only_once(world: World) -> None:
    """S-407, D-20: `on conflict do nothing`; folding again adds nothing."""
    today, yesterday = midnight(world) - DAY, midnight(world) - 2 * DAY
    for offset in (0, 7, 59):
        world.hands.put_counter(minute(yesterday + offset * MINUTE, retried=2), shard=offset % 8)
    world.hands.put_counter(minute(yesterday + 23 * HOUR + 59 * MINUTE, max_run_ms=400))
    world.hands.put_counter(minute(midnight(world) + DAY))
    assert fold(world).buckets == 3
    assert fold(world).buckets == 0
    hours = [bucket for bucket in world.counters.list(tier="hour") if bucket.bucket_at < today]
    assert [(bucket.bucket_at, figures(bucket)) for bucket in hours] == [
        (yesterday + 23 * HOUR, {"completed": 1, "run_ms": 10, "max_run_ms": 400}),
        (yesterday, {"completed": 3, "retried": 6, "run_ms": 30, "max_run_ms": 10}),
    ]
    (day,) = [bucket for bucket in world.counters.list(tier="day") if bucket.bucket_at < today]
    assert (day.bucket_at, figures(day)) == (
        yesterday,
        {"completed": 4, "retried": 6, "run_ms": 40, "max_run_ms": 400},
    )


def test_the_hour_and_the_day_under_way_show_before_they_are_folded(world: World) -> None:
    """D-20, D-40: what is not folded yet is added up in the answer, and nothing twice."""
    world.settle(world.running(), Done(), duration_ms=5)
    yesterday = midnight(world) - DAY
    world.hands.put_counter(minute(yesterday))
    for _ in range(2):
        for tier in ("minute", "hour", "day"):
            assert total(world, tier=tier)["completed"] == 2
        fold(world)


def fold(world: World) -> RollUp:
    """Fold what is closed."""
    folded = world.counters.rollup_counters()
    assert folded is not None
    return folded


def fold_all(world: World) -> int:
    """Fold until nothing is left; answer how many buckets were added."""
    added = 0
    while True:
        folded = fold(world)
        added += folded.buckets
        if folded.next_in_seconds > 0:
            return added


def test_what_an_outage_left_behind_is_folded_in_several_calls(world: World) -> None:
    """S-407, D-20: the oldest hours first, a few at once, so that no call is long; nothing counts twice meanwhile."""
    start = midnight(world) - 3 * DAY
    for hour in range(40):
        world.hands.put_counter(minute(start + hour * HOUR))
    added = []
    while True:
        folded = fold(world)
        added.append(folded.buckets)
        for tier in ("hour", "day"):
            assert total(world, tier=tier)["completed"] == 40
        if folded.next_in_seconds > 0:
            break
    assert added == [3] * 7 + [3 + 1] + [3] * 5 + [1 + 1]
    assert [bucket.completed for bucket in world.counters.list(tier="day")] == [16, 24]


def test_a_fold_renews_the_leader_s_lease_and_nobody_else_s(world: World) -> None:
    """S-254, S-255, S-385: it is fenced on the lease, in one statement with its renewal."""
    leader = world.driver.stores().leader
    assert leader is not None
    world.hands.put_counter(minute(midnight(world) - 2 * DAY))
    lease = Lease(name="scheduler", holder="a", seconds=30)
    assert world.counters.rollup_counters(lease=lease) is None, "nobody leads"
    assert leader.acquire("scheduler", "b", lease_seconds=30)
    assert world.counters.rollup_counters(lease=lease) is None, "another leads"
    held = leader.get("scheduler")
    assert held is not None
    assert held.holder == "b"
    world.hands.pass_time(20)
    folded = world.counters.rollup_counters(lease=replace(lease, holder="b"))
    assert folded is not None
    assert folded.buckets == 2
    world.hands.pass_time(20)
    assert leader.get("scheduler") is not None, "40 s after it was taken, 20 s after the fold"
    world.hands.pass_time(20)
    assert world.counters.rollup_counters(lease=replace(lease, holder="b")) is None, "it has expired"


def test_a_fold_says_when_the_next_can_be_due(world: World) -> None:
    """S-254: a minute after the hour, by the clock that the buckets are stamped by."""
    before = world.hands.now()
    seconds = fold(world).next_in_seconds
    due = world.hands.now() + timedelta(seconds=seconds)
    assert 0 < seconds <= 3_600
    assert abs(due.replace(minute=1, second=0, microsecond=0) - due) < timedelta(seconds=1) + (
        world.hands.now() - before
    )


@pytest.fixture
def memory(request: pytest.FixtureRequest) -> tuple[World, Callable[[str], None]]:
    """The memory driver, and what moves its clock to an instant of its day."""
    world = empty_world("memory", request)
    hands = world.hands
    assert isinstance(hands, MemoryHands)
    start = midnight(world) + DAY

    def move(text: str) -> None:
        hour, minutes, second = map(int, text.split(":"))
        hands._clock.move_to(start + timedelta(hours=hour, minutes=minutes, seconds=second))

    return world, move


def test_an_hour_is_closed_for_a_minute_before_it_is_folded(memory: tuple[World, Callable[[str], None]]) -> None:
    """D-20: a settle that began in it may still commit."""
    world, move = memory
    move("8:59:59")
    world.settle(world.running(), Done())
    move("9:00:59")
    assert fold(world).buckets == 0
    world.settle(world.running(), Done())
    move("9:01:00")
    assert fold(world).buckets == 1
    assert fold(world).next_in_seconds == pytest.approx(3_600, abs=1)
    assert [bucket.completed for bucket in world.counters.list(tier="hour")] == [1, 1]


def test_a_day_is_folded_with_its_last_hour(memory: tuple[World, Callable[[str], None]]) -> None:
    """D-20: hour and day close in the same minute; the day must not be stored without that hour."""
    world, move = memory
    move("22:30:00")
    world.settle(world.running(), Done())
    move("23:01:00")
    fold(world)
    move("23:59:00")
    world.settle(world.running(), Done())
    move("24:01:00")
    assert fold(world).buckets == 2
    (day,) = world.counters.list(tier="day")
    assert day.completed == 2


AMOUNTS = st.integers(0, 5)
ROWS = st.lists(
    st.tuples(st.sampled_from(["mail", "post"]), st.integers(0, 4 * 24 * 60 - 1), st.integers(0, 7), AMOUNTS, AMOUNTS),
    max_size=30,
    unique_by=lambda row: row[:3],
)


@pytest.mark.parametrize("kind", ["memory", "postgres"])
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(parts=st.lists(ROWS, min_size=1, max_size=3))
def test_folding_loses_and_doubles_nothing(
    request: pytest.FixtureRequest, kind: str, parts: list[list[tuple[str, int, int, int, int]]]
) -> None:
    """D-20, S-407, D-39: rows of four days and two names, folded after each part, however old, and purged between.

    Later parts bring only buckets that were not folded yet, as settles do.
    """
    world = empty_world(kind, request)
    start = midnight(world) - 5 * DAY
    retention = world.driver.stores().retention
    assert retention is not None
    expected: dict[tuple[CounterTier, datetime, str], tuple[int, int]] = {}
    for at, part in enumerate(parts):
        for name, offset, shard, completed, ran in part:
            bucket_at = start - 4 * DAY * (len(parts) - at) + offset * MINUTE
            row = minute(bucket_at, name, completed=completed, run_ms=ran, max_run_ms=ran)
            world.hands.put_counter(row, shard=shard)
            for tier, begun in (
                ("hour", bucket_at.replace(minute=0)),
                ("day", bucket_at.replace(minute=0, hour=0)),
            ):
                former = expected.get((tier, begun, name), (0, 0))  # type: ignore[arg-type]
                expected[tier, begun, name] = (former[0] + completed, max(former[1], ran))  # type: ignore[index]
        fold_all(world)
        retention.remove("minute-counters", before=world.hands.now() - 2 * HOUR)
        assert fold(world).buckets == 0
    stored = {
        (bucket.tier, bucket.bucket_at, bucket.name): (bucket.completed, bucket.max_run_ms)
        for tier in ("hour", "day")
        for bucket in world.counters.list(tier=tier)
    }
    assert stored == expected
    assert world.counters.list() == []


def test_leaders_that_fold_at_once_fold_once(world: World) -> None:
    """D-20, S-270: during a rolling update two may think that they lead."""
    start = midnight(world) - 2 * DAY
    for offset in range(0, 24 * 60, 7):
        world.hands.put_counter(minute(start + offset * MINUTE, f"job-{offset % 5}"))
    began, folded = threading.Barrier(4), list[int]()

    def fold_at_once() -> None:
        began.wait(10)
        folded.append(fold_all(world))

    threads = [threading.Thread(target=fold_at_once, name="rowsweep-test", daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    days = world.counters.list(tier="day")
    assert sum(day.completed for day in days) == len(range(0, 24 * 60, 7))
    hours = world.counters.list(tier="hour")
    assert sum(hour.completed for hour in hours) == len(range(0, 24 * 60, 7))
    assert sum(folded) == len(days) + len(hours)
