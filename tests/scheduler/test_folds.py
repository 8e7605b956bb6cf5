"""The leader folds the counters: once after each hour, in the place of a renewal, and never at a task's expense."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rowsweep.errors import DriverUnavailable
from rowsweep.queue.stores.counters import CounterBucket, CounterStore, RollUp
from rowsweep.queue.stores.schedules import Lease
from rowsweep.scheduler.leaders import LeaseLeader, SoleLeader
from tests.scheduler.world import HOUR, START, Tower, fired, hourly

RENEWAL = timedelta(seconds=10)


class Watched:
    """Count a driver's folds, and let them fail when told to."""

    def __init__(self, store: CounterStore) -> None:
        self._store = store
        self.leases: list[Lease | None] = []
        self.error: Exception | None = None

    def rollup_counters(self, *, lease: Lease | None = None) -> RollUp | None:
        self.leases.append(lease)
        if self.error is not None:
            raise self.error
        return self._store.rollup_counters(lease=lease)

    def list(self, **given: Any) -> Any:
        return self._store.list(**given)


@pytest.fixture
def watched(memory: Tower, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """The memory driver's counters, watched; the clock is their own."""
    stores = memory.driver.stores()
    assert stores.counters is not None
    watched = Watched(stores.counters)
    seen = replace(stores, counters=watched)
    monkeypatch.setattr(memory.driver, "control", lambda: seen)
    return watched


def count_one(tower: Tower, watched: Watched, at: Any) -> None:
    """Let one run have completed in a minute."""
    row = CounterBucket(tier="minute", bucket_at=at, name="mail", completed=1)
    watched._store._state.counters["minute", at, "mail"] = row  # type: ignore[attr-defined]


def stored(watched: Watched, tier: Any) -> list[str]:
    """Answer the buckets of a tier that are stored, not those a read adds up."""
    rows = watched._store._state.counters.values()  # type: ignore[attr-defined]
    return [f"{row.bucket_at:%d %H:%M}" for row in rows if row.tier == tier]


def run_until(tower: Tower, scheduler: Any, span: timedelta, *, gap: timedelta = timedelta(seconds=1)) -> None:
    """Make a round every second, or after every gap."""
    end = tower.clock.now() + span
    while tower.clock.now() < end:
        tower.pass_time(gap)
        scheduler.tick()


def test_the_leader_folds_once_an_hour_in_the_place_of_a_renewal(memory: Tower, watched: Watched) -> None:
    """S-254, S-407, S-386: one fold for what was left behind, then one a closed hour, and no lease lost by it."""
    leader = LeaseLeader(memory.driver)
    count_one(memory, watched, START - HOUR)
    scheduler, standby = memory.scheduler(leader=leader), memory.scheduler(leader=LeaseLeader(memory.driver))
    scheduler.tick()
    standby.tick()
    assert watched.leases == [], "gaining the lead is a statement of its own"
    run_until(memory, scheduler, RENEWAL)
    assert watched.leases == [leader.lease]
    assert stored(watched, "hour") == ["31 07:00"]
    count_one(memory, watched, START)
    run_until(memory, scheduler, 3 * HOUR, gap=RENEWAL)
    standby.tick()
    assert scheduler.is_leading
    assert not standby.is_leading
    assert len(watched.leases) == 4, "at 9:01, 10:01 and 11:01"
    assert stored(watched, "hour") == ["31 07:00", "31 08:00"]


def test_a_standby_folds_nothing_until_it_leads(memory: Tower, watched: Watched) -> None:
    """S-254."""
    first, second = (memory.scheduler(leader=LeaseLeader(memory.driver)) for _ in range(2))
    first.tick()
    run_until(memory, second, timedelta(seconds=29))
    assert watched.leases == []
    run_until(memory, second, timedelta(seconds=30))
    assert second.is_leading
    assert len(watched.leases) == 1


def test_a_lease_that_was_taken_meanwhile_is_lost_at_the_fold(
    memory: Tower, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """S-260, S-254: nothing is folded under another's lease, and the loss is said once."""
    caplog.set_level(logging.INFO, logger="rowsweep")
    count_one(memory, watched, START - HOUR)
    scheduler = memory.scheduler(leader=LeaseLeader(memory.driver))
    scheduler.tick()
    memory.pass_time(timedelta(seconds=31))
    assert LeaseLeader(memory.driver).acquire()
    scheduler.tick()
    assert not scheduler.is_leading
    assert stored(watched, "hour") == []
    assert [record.message for record in caplog.records].count("jobs.scheduler.leadership-lost") == 1


def test_a_lease_that_only_lapsed_is_taken_again(memory: Tower, watched: Watched) -> None:
    """S-258: the fold renews no expired lease; asking for it does."""
    scheduler = memory.scheduler(leader=LeaseLeader(memory.driver))
    scheduler.tick()
    memory.pass_time(timedelta(minutes=5))
    scheduler.tick()
    assert scheduler.is_leading
    assert len(watched.leases) == 1
    run_until(memory, scheduler, RENEWAL)
    assert len(watched.leases) == 2


@pytest.mark.parametrize("error", [DriverUnavailable("gone", fix="wait"), ValueError("no")], ids=["outage", "bug"])
def test_a_fold_that_fails_keeps_no_task_from_firing(
    memory: Tower, watched: Watched, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """S-251, S-254: it is reported, the lease is renewed all the same, and it is tried again a minute later."""
    caplog.set_level(logging.INFO, logger="rowsweep")
    hourly()
    watched.error = error
    scheduler = memory.scheduler(leader=LeaseLeader(memory.driver))
    scheduler.tick()
    run_until(memory, scheduler, timedelta(seconds=59))
    assert len(watched.leases) == 1
    assert scheduler.is_leading
    memory.pass_time(START + HOUR / 2 - memory.clock.now())
    assert fired(scheduler.tick()) == ["hourly 09:00"]
    assert len(watched.leases) == 2
    watched.error = None
    run_until(memory, scheduler, timedelta(seconds=70))
    assert len(watched.leases) == 3
    assert [record.message for record in caplog.records].count("jobs.scheduler.tick-failed") == 2


def test_a_leader_without_a_lease_folds_too(memory: Tower, watched: Watched) -> None:
    """S-254, S-256."""
    count_one(memory, watched, START - HOUR)
    scheduler = memory.scheduler(leader=SoleLeader())
    run_until(memory, scheduler, timedelta(minutes=20), gap=RENEWAL)
    assert watched.leases == [None]
    assert stored(watched, "hour") == ["31 07:00"]


def test_a_driver_without_counters_has_nothing_to_fold(memory: Tower, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-057."""
    bare = replace(memory.driver.stores(), counters=None)
    monkeypatch.setattr(memory.driver, "control", lambda: bare)
    scheduler = memory.scheduler(leader=LeaseLeader(memory.driver))
    run_until(memory, scheduler, timedelta(minutes=1), gap=RENEWAL)
    assert scheduler.is_leading
