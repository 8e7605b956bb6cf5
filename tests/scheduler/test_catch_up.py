"""What becomes of missed occurrences, and that finding them is bounded work."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowsweep.jobs.tasks.occurrences import next_occurrence
from rowsweep.scheduler.catch_up import due, latest_occurrence_by
from tests.scheduler.world import HOUR, Tower, fired, hourly

NINE = datetime(2025, 1, 31, 9, tzinfo=UTC)


def down_for_a_day(tower: Tower, **declared: Any) -> tuple[list[str], list[str], datetime | None]:
    """Arm an hourly task, let a day pass, make one round; answer what it fired, the inputs, and the watermark."""
    hourly(**declared)
    assert tower.scheduler().tick() == []
    tower.at("2025-02-01 08:45")
    found = tower.scheduler().tick()
    assert all(one.catch_up for one in found)
    return fired(found), tower.inputs(), tower.state.last_fired_at("hourly")


def test_skip_fires_the_latest_and_drops_the_rest(tower: Tower) -> None:
    """S-243, S-225."""
    found, inputs, watermark = down_for_a_day(tower)
    assert (found, inputs, watermark) == (["hourly 08:00"], ["08:00"], NINE + 23 * HOUR)
    assert tower.scheduler().tick() == []


def test_run_once_fires_the_earliest_in_place_of_all(tower: Tower) -> None:
    """S-244, S-246, N-097: one catch-up, not 24; the watermark passes the rest in the fire itself."""
    found, inputs, watermark = down_for_a_day(tower, catch_up="run-once")
    assert (found, inputs) == (["hourly 09:00"], ["09:00"])
    assert watermark == datetime(2025, 2, 1, 8, 45, tzinfo=UTC)
    assert tower.scheduler().tick() == []
    tower.at("2025-02-01 09:00")
    assert fired(tower.scheduler().tick()) == ["hourly 09:00"]


def test_run_all_fires_each_of_the_newest_oldest_first(tower: Tower) -> None:
    """S-245, N-097."""
    found, inputs, watermark = down_for_a_day(tower, catch_up="run-all", max_catch_up=3)
    assert found == ["hourly 06:00", "hourly 07:00", "hourly 08:00"]
    assert (inputs, watermark) == (["06:00", "07:00", "08:00"], NINE + 23 * HOUR)
    assert tower.scheduler().tick() == []


def test_run_all_fires_all_where_they_are_no_more_than_it_may(tower: Tower) -> None:
    """S-245."""
    found, _, _ = down_for_a_day(tower, catch_up="run-all", max_catch_up=24)
    assert len(found) == 24
    assert (found[0], found[-1]) == ("hourly 09:00", "hourly 08:00")


@pytest.mark.parametrize(
    ("declared", "dropped"),
    [
        ({"catch_up": "skip"}, [23]),
        ({"catch_up": "run-once"}, [23]),
        ({"catch_up": "run-all", "max_catch_up": 2}, [22, 0]),
        ({"catch_up": "run-all", "max_catch_up": 24}, [0] * 24),
        ({"catch_up": "skip", "cron": "* * * * *"}, ["at least 1000"]),
    ],
)
def test_the_number_of_dropped_occurrences_is_logged(
    memory: Tower, caplog: pytest.LogCaptureFixture, declared: dict[str, Any], dropped: list[Any]
) -> None:
    """N-097, S-250, D-31."""
    with caplog.at_level(logging.INFO, "rowsweep"):
        down_for_a_day(memory, **declared)
    logged = [vars(record)["fields"] for record in caplog.records if record.message == "jobs.scheduler.dispatched"]
    assert [fields["dropped"] for fields in logged] == dropped
    assert {fields["catch_up"] for fields in logged} == {True}


def test_one_due_occurrence_is_no_catch_up(tower: Tower) -> None:
    """S-250."""
    hourly(catch_up="run-once")
    tower.scheduler().tick()
    tower.at("2025-01-31 09:59")
    (one,) = tower.scheduler().tick()
    assert (one.catch_up, one.dropped, tower.state.last_fired_at("hourly")) == (False, 0, NINE)


CRONS = ["* * * * *", "*/5 * * * *", "0 9 * * 1-5", "0 0 29 2 *", "30 1 * * *", "* 3 1 1 *"]


@given(
    cron=st.sampled_from(CRONS),
    start=st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001 - the zone is given below
    span=st.timedeltas(timedelta(0), timedelta(days=2)),
)
def test_the_latest_occurrence_is_the_last_one_that_counting_finds(cron: str, start: datetime, span: timedelta) -> None:
    """S-243."""
    after = start.replace(tzinfo=UTC)
    by, expected, at = after + span, None, next_occurrence(cron, "Europe/London", after)
    while at <= by:
        expected, at = at, next_occurrence(cron, "Europe/London", at)
    assert latest_occurrence_by(lambda when: next_occurrence(cron, "Europe/London", when), after, by) == expected


@pytest.mark.parametrize("cron", CRONS)
def test_finding_the_latest_of_many_years_is_bounded_work(cron: str) -> None:
    """S-243: no more questions for thirty years of minutes than for a day."""
    asked = 0

    def following(after: datetime) -> datetime:
        nonlocal asked
        asked += 1
        return next_occurrence(cron, "UTC", after)

    by = datetime(2030, 6, 1, 12, 0, 30, tzinfo=UTC)
    latest = latest_occurrence_by(following, datetime(2000, 1, 1, tzinfo=UTC), by)
    assert latest is not None
    assert latest <= by < next_occurrence(cron, "UTC", latest)
    assert asked <= 130


def test_newest_occurrences_are_found_from_the_end_where_too_many_were_missed() -> None:
    """S-245, N-097."""
    task = hourly(cron="* * * * *", catch_up="run-all", max_catch_up=4)
    found = due(task, datetime(2020, 1, 1, tzinfo=UTC), NINE + timedelta(seconds=20), next_occurrence)
    assert [at for at, _ in found.fires] == [NINE - timedelta(minutes=n) for n in (3, 2, 1, 0)]
    assert (found.dropped, found.dropped_is_least, found.is_catch_up) == (1_000, True, True)
