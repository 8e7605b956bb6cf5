"""When a row is due: by the column's type, the target's zone, and what "older" means."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

import rowsweep as rs
from rowsweep.sweeps.purge.targets.setup import check_target
from rowsweep.sweeps.purge.targets.target import RowTarget
from tests.sweeps.field import Field
from tests.sweeps.purge.events import declare

AT = datetime(2026, 4, 1, 3, 30, tzinfo=UTC)
"""Three days behind the switch to summer time in Europe."""


@pytest.fixture(params=["UTC", "America/New_York"])
def sessions_zone(request: pytest.FixtureRequest, field: Field) -> str:
    """Whatever zone the sessions are in by themselves."""
    zone: str = request.param
    field.sql("create table t (id int primary key, at_tz timestamptz, at_wall timestamp, on_day date)")
    field.sql(f"set timezone = '{zone}'")
    return zone


def cutoff(field: Field, target: RowTarget) -> tuple[str, str]:
    """Answer a target's operator and cutoff at AT, in a sweep's transaction."""
    purge = declare(target)
    held = purge.held_on(field.app, None, None)
    try:
        with held.transaction():
            setup = check_target(held.connection, target, AT.isoformat())
            return setup.operator, setup.cutoff
    finally:
        held.release()


def instant(wall: datetime, zone: str) -> str:
    """Write the instant at which the clocks of a zone show a time, as the sweep's sessions do."""
    return wall.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S+00")


@pytest.mark.parametrize("zone", ["UTC", "Europe/London", "Asia/Kathmandu", "America/Sao_Paulo", "Pacific/Auckland"])
@pytest.mark.parametrize("days", [1, 2, 3, 4, 30, 365])
def test_days_are_counted_by_the_calendar_of_the_zone(field: Field, sessions_zone: str, zone: str, days: int) -> None:
    """D-8: worked out here by other means; the session's own zone changes nothing."""
    wall = AT.astimezone(ZoneInfo(zone)).replace(tzinfo=None) - timedelta(days=days)
    expected = {
        "at_tz": instant(wall, zone),
        "at_wall": wall.strftime("%Y-%m-%d %H:%M:%S"),
        "on_day": wall.date().isoformat(),
    }
    found = {column: cutoff(field, rs.older_than("t", column, days=days, tz=zone)) for column in expected}
    assert found == {column: ("<", text) for column, text in expected.items()}


@pytest.mark.parametrize("zone", ["UTC", "Europe/London", "Asia/Kathmandu"])
@pytest.mark.parametrize("age", ["90m", "36h", timedelta(days=4, seconds=1)])
def test_an_age_is_a_length_of_time(field: Field, sessions_zone: str, zone: str, age: Any) -> None:
    """D-8: whatever the clocks did meanwhile."""
    length = {"90m": timedelta(minutes=90), "36h": timedelta(hours=36)}.get(age, age)
    wall = (AT - length).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    expected = {
        "at_tz": (AT - length).strftime("%Y-%m-%d %H:%M:%S+00"),
        "at_wall": wall.strftime("%Y-%m-%d %H:%M:%S"),
        "on_day": wall.date().isoformat(),
    }
    found = {column: cutoff(field, rs.older_than("t", column, age=age, tz=zone)) for column in expected}
    assert found == {column: ("<", text) for column, text in expected.items()}


@pytest.mark.parametrize("zone", ["UTC", "Europe/London", "America/Los_Angeles"])
def test_an_expiry_has_been_reached(field: Field, sessions_zone: str, zone: str) -> None:
    """D-8: at the very instant; a date once it is over."""
    wall = AT.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    expected = {
        "at_tz": ("<=", AT.strftime("%Y-%m-%d %H:%M:%S+00")),
        "at_wall": ("<=", wall.strftime("%Y-%m-%d %H:%M:%S")),
        "on_day": ("<", wall.date().isoformat()),
    }
    assert {column: cutoff(field, rs.expired("t", column, tz=zone)) for column in expected} == expected


def test_a_day_is_old_enough_once_the_whole_of_it_is(field: Field) -> None:
    """D-8: with today 2026-11-29, a day kept for 7 days goes on the eighth day behind it."""
    field.sql("create table t (id serial primary key, on_day date)")
    field.sql("create domain day as date; alter table t alter on_day type day")
    today: date = field.one("select (now() at time zone 'UTC')::date")
    field.sql("insert into t (on_day) select %s::date - i from generate_series(0, 20) i", [today])
    field.sql("insert into t (on_day) values (null), ('infinity'), ('-infinity')")
    field.sweep(declare(rs.older_than("t", "on_day", days=7)))
    kept = [row[0] for row in field.sql("select on_day::text from t where on_day is not null order by on_day")]
    assert kept == [*((today - timedelta(days=days)).isoformat() for days in range(7, -1, -1)), "infinity"]
    assert field.one("select count(*) from t where on_day is null") == 1


@pytest.mark.parametrize("type_", ["timestamptz", "timestamp", "timestamptz(0)", "moment"])
def test_rows_at_the_cutoff_itself(field: Field, type_: str) -> None:
    """D-8: older is strictly older; an expiry counts when it is reached. Microseconds are told apart."""
    field.sql("create domain moment as timestamptz check (value > '1900-01-01')")
    field.sql(f"create table t (id int primary key, at {type_}); create index on t (at)")
    rows = [(1, -1), (2, 0), (3, 1)]
    zone = "Europe/London"
    wall = "at time zone 'Europe/London'" if type_ == "timestamp" else ""

    def fill(base: str, unit: str) -> None:
        field.sql("delete from t")
        for key, shift in rows:
            field.sql(
                f"insert into t values (%s, (%s::timestamptz + %s * interval '1 {unit}') {wall})", [key, base, shift]
            )

    for target, expected in (
        (rs.older_than("t", "at", age="1h", tz=zone), [2, 3]),
        (rs.expired("t", "at", tz=zone), [3]),
    ):
        purge = declare(target)
        held = purge.held_on(field.app, None, None)
        at = "2026-07-01T12:00:00+00:00"
        base = "2026-07-01 11:00+00" if target.age else "2026-07-01 12:00+00"
        fill(base, "second" if type_ == "timestamptz(0)" else "microsecond")
        with held.transaction():
            setup = check_target(held.connection, target, at)
            statement = setup.statements().delete().as_string(held.connection)
            ctids = held.connection.execute("select array_agg(ctid::text)::text from t").fetchone()
            held.connection.execute(statement, {"rs_a0": ctids[0], "rs_cutoff": setup.cutoff})
        held.release()
        assert [row[0] for row in field.sql("select id from t order by 1")] == expected


def test_the_whole_pass_over_each_type(field: Field) -> None:
    """D-8: through the index, page by page."""
    field.sql(
        "create table t (id int primary key, at_tz timestamptz, at_wall timestamp, on_day date); "
        "create index on t (at_tz); create index on t (at_wall); create index on t (on_day)"
    )
    for column in ("at_tz", "at_wall", "on_day"):
        field.sql("delete from t")
        field.sql(
            "insert into t select i, s, s at time zone 'Asia/Kathmandu', (s at time zone 'Asia/Kathmandu')::date "
            "from generate_series(1, 400) i cross join lateral (select now() - i * interval '6 hours' as s) q"
        )
        target = rs.older_than("t", column, days=50, tz="Asia/Kathmandu")
        due = field.one(
            f"select count(*) from t where {column} < "
            f"{'(' if column == 'on_day' else ''}(now() at time zone 'Asia/Kathmandu' - interval '50 days')"
            + {"at_tz": " at time zone 'Asia/Kathmandu'", "at_wall": "", "on_day": ")::date"}[column]
        )
        assert 190 < due < 205
        assert field.sweep(declare(target, batch_rows=30, adapt=False))["total"] == due


def test_a_zone_that_only_this_process_knows_is_an_error_that_says_so(field: Field) -> None:
    """D-8."""
    field.sql("create table t (id int primary key, at_tz timestamptz)")
    target = RowTarget(name="t", rows=rs.Rows("t"), column="at_tz", days=1, tz="Nowhere/At_All")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="Nowhere/At_All"):
        cutoff(field, target)
