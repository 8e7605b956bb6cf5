"""Counters as an operator reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

import rowsweep as rs
from rowsweep.errors import InvalidOption, NotImplementedByDriver
from rowsweep.operate.counters import read_counters
from rowsweep.queue.memory.driver import MemoryDriver
from rowsweep.queue.stores.counters import CounterBucket
from rowsweep.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    """A clock that only the test moves."""
    return FakeClock()


@pytest.fixture
def driver(clock: FakeClock) -> MemoryDriver:
    """A driver with one run completed in each of the last 90 minutes."""
    driver = MemoryDriver(clock)
    now = clock.now().replace(second=0, microsecond=0)
    for ago in range(90):
        at = now - timedelta(minutes=ago)
        row = CounterBucket(tier="minute", bucket_at=at, name="mail", completed=1, run_ms=5, max_run_ms=5)
        driver._state.counters["minute", at, "mail"] = row
    return driver


def test_counters_are_read_back_to_an_instant_or_for_so_long(driver: MemoryDriver, clock: FakeClock) -> None:
    """D-20, D-40, S-014: `since` is an instant or a duration."""
    assert len(read_counters(driver)) == 90
    assert len(read_counters(driver, since="10m", clock=clock)) == 11
    assert len(read_counters(driver, since=clock.now() - timedelta(minutes=10))) == 11
    assert len(read_counters(driver, limit=7)) == 7
    assert read_counters(driver, name="post") == []
    assert sum(bucket.completed for bucket in read_counters(driver, tier="day")) == 90


@pytest.mark.parametrize("since", ["10", 600, "yesterday"])
def test_a_bare_number_is_no_time(driver: MemoryDriver, since: object) -> None:
    """N-003, D-37."""
    with pytest.raises(InvalidOption):
        read_counters(driver, since=since)  # type: ignore[arg-type]


def test_a_bucket_is_plain_json(driver: MemoryDriver) -> None:
    """S-015."""
    (first, *_) = read_counters(driver)
    plain = json.loads(json.dumps(first.as_json()))
    assert (plain["name"], plain["completed"], plain["bucket_at"]) == ("mail", 1, first.bucket_at.isoformat())


def test_a_driver_without_counters_says_so(driver: MemoryDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-057, S-400."""
    bare = replace(driver.stores(), counters=None)
    monkeypatch.setattr(driver, "stores", lambda: bare)
    with pytest.raises(NotImplementedByDriver):
        read_counters(driver)


@pytest.fixture
def connected(driver: MemoryDriver) -> Iterator[None]:
    """This process connected to the driver."""
    app = rs.connect(driver=driver, work=False)
    yield
    app.close()


@pytest.mark.usefixtures("connected")
def test_the_connected_app_s_counters_are_read_by_one_call() -> None:
    """S-006."""
    assert [bucket.name for bucket in rs.counters(limit=2)] == ["mail", "mail"]
