"""When a cron is due, through real zones' switches, against a reference that knows nothing but minutes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest

from rowsweep.jobs.tasks.occurrences import next_occurrence

MINUTE = timedelta(minutes=1)
DAY = 24 * 60


def utc(text: str) -> datetime:
    """Answer the instant of `2025-03-30 01:30`."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def due(cron: str, tz: str, start: str, until: str) -> list[str]:
    """Answer the occurrences in `[start, until)`, as UTC text."""
    at, end, found = utc(start) - MINUTE / 60, utc(until), []
    while (at := next_occurrence(cron, tz, at)) < end:
        found.append(f"{at:%m-%d %H:%M}")
    return found


FIXED = [
    ("Europe/London", "30 1 * * *", "2025-03-29", "2025-04-01", ["03-29 01:30", "03-30 01:00", "03-31 00:30"], "gap"),
    (
        "Europe/London",
        "30 1 * * *",
        "2025-10-25",
        "2025-10-28",
        ["10-25 00:30", "10-26 00:30", "10-27 01:30"],
        "overlap",
    ),
    ("Europe/London", "15,45 1 * * *", "2025-03-30", "2025-03-31", ["03-30 01:00"], "one gap"),
    ("Europe/London", "0 1,2 * * *", "2025-03-30", "2025-03-30 12:00", ["03-30 01:00"], "the gap's end has its own"),
    (
        "America/New_York",
        "30 2 * * *",
        "2025-03-08",
        "2025-03-11",
        ["03-08 07:30", "03-09 07:00", "03-10 06:30"],
        "gap",
    ),
    (
        "America/New_York",
        "30 1 * * *",
        "2025-11-01",
        "2025-11-04",
        ["11-01 05:30", "11-02 05:30", "11-03 06:30"],
        "overlap",
    ),
    (
        "Australia/Lord_Howe",
        "15 2 * * *",
        "2025-10-04",
        "2025-10-06",
        ["10-04 15:30", "10-05 15:15"],
        "half an hour's gap",
    ),
    (
        "Australia/Lord_Howe",
        "45 1 * * *",
        "2025-04-04",
        "2025-04-07",
        ["04-04 14:45", "04-05 14:45", "04-06 15:15"],
        "half an hour's overlap",
    ),
    ("Asia/Kathmandu", "0 9 * * *", "2025-03-29", "2025-03-31", ["03-29 03:15", "03-30 03:15"], "never switches"),
    (
        "America/Sao_Paulo",
        "0 0 * * *",
        "2018-11-03",
        "2018-11-06",
        ["11-03 03:00", "11-04 03:00", "11-05 02:00"],
        "no midnight",
    ),
    (
        "America/Sao_Paulo",
        "@daily",
        "2018-02-17",
        "2018-02-20",
        ["02-17 02:00", "02-18 03:00", "02-19 03:00"],
        "midnight after the overlap",
    ),
    (
        "America/Sao_Paulo",
        "30 23 * * *",
        "2018-02-17",
        "2018-02-20",
        ["02-17 01:30", "02-18 01:30", "02-19 02:30"],
        "23:30 twice",
    ),
    (
        "Africa/Casablanca",
        "30 2 * * *",
        "2025-02-22",
        "2025-02-25",
        ["02-22 01:30", "02-23 01:30", "02-24 02:30"],
        "Ramadan begins",
    ),
    (
        "Africa/Casablanca",
        "30 2 * * *",
        "2025-04-05",
        "2025-04-08",
        ["04-05 02:30", "04-06 02:00", "04-07 01:30"],
        "Ramadan ends",
    ),
]


@pytest.mark.parametrize(("tz", "cron", "start", "until", "expected", "why"), FIXED)
def test_a_fixed_wall_time_is_due_once_a_day(
    tz: str, cron: str, start: str, until: str, expected: list[str], why: str
) -> None:
    """N-022: skipped by a gap it is due right after it, repeated by an overlap the first time."""
    assert due(cron, tz, start, until) == expected, why


@pytest.mark.parametrize(
    ("tz", "switch"),
    [
        ("Europe/London", "2025-03-30 01:00"),
        ("Europe/London", "2025-10-26 01:00"),
        ("America/New_York", "2025-03-09 07:00"),
        ("America/New_York", "2025-11-02 06:00"),
        ("Australia/Lord_Howe", "2025-04-05 15:00"),
        ("Australia/Lord_Howe", "2025-10-04 15:30"),
        ("America/Sao_Paulo", "2018-11-04 03:00"),
        ("Africa/Casablanca", "2025-02-23 02:00"),
        ("Africa/Casablanca", "2025-04-06 02:00"),
    ],
)
@pytest.mark.parametrize("minutes", [1, 5, 10, 15, 30])
def test_every_so_many_minutes_keeps_its_rhythm_through_a_switch(tz: str, switch: str, minutes: int) -> None:
    """N-022: elapsed time, in the gap and in both passes of the overlap."""
    start = utc(switch) - timedelta(hours=6)
    at, gaps = next_occurrence(f"*/{minutes} * * * *", tz, start), set[timedelta]()
    while at < start + timedelta(hours=12):
        following = next_occurrence(f"*/{minutes} * * * *", tz, at)
        gaps.add(following - at)
        at = following
    assert gaps == {timedelta(minutes=minutes)}


@pytest.mark.parametrize("tz", ["Europe/London", "America/New_York", "Africa/Casablanca"])
def test_an_hourly_schedule_keeps_its_rhythm_through_a_year(tz: str) -> None:
    """N-022: switches by whole hours."""
    at, gaps = next_occurrence("@hourly", tz, utc("2025-01-01")), set[timedelta]()
    while at < utc("2026-01-01"):
        following = next_occurrence("@hourly", tz, at)
        gaps.add(following - at)
        at = following
    assert gaps == {timedelta(hours=1)}


def test_asked_inside_the_second_pass_of_an_overlap_the_answer_lies_ahead() -> None:
    """N-022, S-234: it was due in the first pass; a scheduler that starts in the second must not be sent back."""
    second_pass = utc("2025-10-26 01:10")
    assert next_occurrence("30 1 * * *", "Europe/London", second_pass) == utc("2025-10-27 01:30")
    assert next_occurrence("*/30 1 * * *", "Europe/London", second_pass) == utc("2025-10-26 01:30")


def test_a_day_that_a_zone_left_out_is_made_up_for_as_it_is_passed() -> None:
    """N-022: Samoa had no 30 December 2011."""
    assert due("0 9 30 12 *", "Pacific/Apia", "2011-12-28", "2012-01-02") == ["12-30 10:00"]


@pytest.mark.parametrize(
    ("cron", "start", "expected"),
    [
        ("0 0 13 * 5", "2025-06-01", ["06-06 00:00", "06-13 00:00", "06-20 00:00", "06-27 00:00", "07-04 00:00"]),
        ("0 0 13 * *", "2025-06-01", ["06-13 00:00", "07-13 00:00"]),
        ("0 0 */2 * MON", "2025-06-01", ["06-09 00:00", "06-23 00:00", "07-07 00:00"]),
        ("0 0 29 2 *", "2023-01-01", ["02-29 00:00"]),
        ("5-10/2 8-9 1 6 *", "2025-06-01", ["06-01 08:05", "06-01 08:07", "06-01 08:09", "06-01 09:05"]),
        ("0 12 * JAN-MAR,dec sun", "2025-03-20", ["03-23 12:00", "03-30 12:00", "12-07 12:00"]),
        ("0 0 * * 7", "2025-06-01", ["06-01 00:00", "06-08 00:00"]),
        ("@yearly", "2025-06-01", ["01-01 00:00", "01-01 00:00"]),
        ("0 0 L * *", "2024-02-01", ["02-29 00:00", "03-31 00:00"]),
    ],
)
def test_the_fields_mean_what_cron_means_by_them(cron: str, start: str, expected: list[str]) -> None:
    """N-022: either day field where both are given; lists, ranges, steps, names, aliases."""
    at, found = utc(start) - MINUTE, list[str]()
    while len(found) < len(expected):
        at = next_occurrence(cron, "UTC", at)
        found.append(f"{at:%m-%d %H:%M}")
    assert found == expected


YEARS = [
    ("America/New_York", 2025),
    ("Australia/Lord_Howe", 2025),
    *(
        pytest.param(tz, year, marks=pytest.mark.slow)
        for tz, year in [
            ("Europe/London", 2025),
            ("Asia/Kathmandu", 2025),
            ("America/Sao_Paulo", 2018),
            ("Africa/Casablanca", 2025),
        ]
    ),
]
SCHEDULES = [
    "30 1 * * *", "15 2 * * *", "0 0 * * *", "30 23 * * 6", "0,20,40 0-3 * * *", "45 1 13 * FRI", "0 9 * * 1-5",
    "*/20 * * * *", "0 * * * *", "30 */2 * * *", "*/15 1 * * *", "* 2 1-7 * *",
]  # fmt: skip


def numbers(field: str, low: int, high: int) -> set[int]:
    """Read one field of digits, lists, ranges and steps."""
    found: set[int] = set()
    for part in field.replace("FRI", "5").split(","):
        span, _, step = part.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


@cache
def minutes_of(tz: str, year: int) -> tuple[list[int], list[int]]:
    """Answer each UTC minute of a year, and what the zone's clocks show then, as minutes since 1970."""
    zone, start, end = ZoneInfo(tz), datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    first, last = (int(at.timestamp()) // 60 for at in (start, end))
    walls = []
    for minute in range(first, last):
        offset = datetime.fromtimestamp(minute * 60, zone).utcoffset()
        assert offset is not None
        walls.append(minute + offset // MINUTE)
    return list(range(first, last)), walls


@cache
def firsts(tz: str, year: int) -> tuple[list[int], list[int]]:
    """Answer each wall time that is shown for the first time, or is passed over, with the minute of that."""
    at, walls, latest = [], [], None
    for minute, wall in zip(*minutes_of(tz, year), strict=True):
        if latest is None or wall > latest:
            new = [wall] if latest is None else range(latest + 1, wall + 1)
            at += [minute] * len(new)
            walls += new
            latest = wall
    return at, walls


def is_day(cron: str, number: int) -> bool:
    """Say whether a day, counted from 1970, is one of the cron's."""
    day = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=number)
    *_, dom, month, dow = cron.split()
    if day.month not in numbers(month, 1, 12):
        return False
    by_month = day.day in numbers(dom, 1, 31)
    by_week = day.isoweekday() % 7 in {number % 7 for number in numbers(dow, 0, 7)}
    return by_month and by_week if dom.startswith("*") or dow.startswith("*") else by_month or by_week


def reference(cron: str, tz: str, year: int) -> list[datetime]:
    """Look at every minute of a year: a rhythm is due at each that it names, a fixed time where it is first met."""
    minute, hour, *_ = cron.split()
    named = {60 * h + m for h in numbers(hour, 0, 23) for m in numbers(minute, 0, 59)}
    at, walls = minutes_of(tz, year) if minute.startswith("*") or hour.startswith("*") else firsts(tz, year)
    days = {number for number in range(walls[0] // DAY, walls[-1] // DAY + 1) if is_day(cron, number)}
    found = {t for t, wall in zip(at, walls, strict=True) if wall % DAY in named and wall // DAY in days}
    return [datetime.fromtimestamp(t * 60, UTC) for t in sorted(found)]


@pytest.mark.parametrize(("tz", "year"), YEARS)
@pytest.mark.parametrize("cron", SCHEDULES)
def test_a_year_of_a_schedule_is_what_looking_at_every_minute_finds(cron: str, tz: str, year: int) -> None:
    """N-022, S-234."""
    expected = reference(cron, tz, year)
    assert expected
    at, found = datetime(year, 1, 1, tzinfo=UTC) - MINUTE / 60, []
    while (at := next_occurrence(cron, tz, at)).year == year:
        found.append(at)
    assert found == expected
