"""What a scheduler with nothing to do costs."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rowsweep.queue.postgres.stores.upkeep.counters import PostgresCounters
from rowsweep.queue.stores.counters import RollUp
from rowsweep.scheduler.leaders import AdvisoryLockLeader, LeaseLeader
from tests.scheduler.world import Tower, hourly
from tests.statements import note_statements

MINUTES = 20


class FastForward:
    """Wait by moving the clock; hold the loop once so many seconds have passed."""

    def __init__(self, tower: Tower, seconds: float) -> None:
        self._tower = tower
        self._end = tower.clock.monotonic() + seconds
        self.over = threading.Event()

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        if self._tower.clock.monotonic() < self._end and seconds is not None:
            self._tower.clock.advance(timedelta(seconds=seconds))
        else:
            self.over.set()
            condition.wait(seconds if seconds is None else 60)


@pytest.mark.parametrize("kind", ["lease", "advisory lock", "standby"])
def test_an_idle_scheduler_of_two_hundred_tasks_sends_at_most_six_statements_a_minute(
    postgres: Tower, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """S-385, S-386, S-259, N-099, DESIGN's idle cost: a round a second, and nothing is due.

    S-254: the minutes in which counters are folded are no dearer.
    """
    for number in range(200):
        hourly(f"t{number:03}", cron="0 23 * * *", tz=("UTC", "Europe/London", "Asia/Kathmandu")[number % 3])
    counted: list[float] = []

    def count(_query: str, _values: Any) -> None:
        if threading.current_thread().name == "rowsweep-scheduler":
            counted.append(postgres.clock.monotonic())

    note_statements(monkeypatch, count)
    folded: list[float] = []
    fold = PostgresCounters.rollup_counters

    def fold_often(self: Any, **given: Any) -> RollUp | None:
        folded.append(postgres.clock.monotonic())
        answer = fold(self, **given)
        return answer and replace(answer, next_in_seconds=300.0)

    monkeypatch.setattr(PostgresCounters, "rollup_counters", fold_often)
    timers = FastForward(postgres, 60.0 * MINUTES)
    leader = AdvisoryLockLeader if kind == "advisory lock" else LeaseLeader
    if kind == "standby":
        assert LeaseLeader(postgres.driver, lease="1h").acquire()
    scheduler = postgres.scheduler(leader=leader(postgres.driver), timers=timers, gap="1s")
    scheduler.start()
    assert timers.over.wait(100)
    assert scheduler.is_leading is (kind != "standby")
    armed = 202 if kind != "standby" else 1
    connecting = 8
    assert sum(at < 10 for at in counted) <= armed + connecting
    a_minute = [sum(60 * m <= at < 60 * (m + 1) for at in counted) for m in range(1, MINUTES)]
    assert 0 < max(a_minute) <= 6
    assert len(folded) == (4 if kind != "standby" else 0)
