"""When a cron in a zone is due, through the switches of its clocks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from rowsweep.errors import InvalidDeclaration
from rowsweep.jobs.tasks.cron import cron_of
from rowsweep.jobs.tasks.zone import instant_of, next_change, wall_of, zone_of

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from rowsweep.jobs.tasks.cron import Cron

Resolver = Callable[[str, str, datetime], datetime]
_TICK: Final = timedelta(microseconds=1)


def next_occurrence(cron: str, tz: str, after: datetime) -> datetime:
    """Answer the first instant later than `after` at which the cron is due in the zone, in UTC.

    A fixed wall time that a gap skips is due right after the gap, one that an overlap repeats is due the first time.
    A cron whose minute or hour begins with `*` is due at every instant whose wall time it names: none in a gap, and
    in an overlap both times. Raises InvalidDeclaration.
    """
    schedule, zone, start = cron_of(cron), zone_of(tz), after.astimezone(UTC)
    try:
        found = _next_rhythm(schedule, zone, start) if schedule.is_rhythm else _next_fixed(schedule, zone, start)
    except OverflowError:
        found = None
    if found is None:
        raise InvalidDeclaration(
            f"The cron {cron!r} is not due again after {after:%Y-%m-%d}.",
            fix='cron="0 9 * * *"',
            meta={"field": "cron"},
        )
    return found


def _next_fixed(schedule: Cron, zone: ZoneInfo, after: datetime) -> datetime | None:
    wall: datetime | None = wall_of(after, zone)
    while wall is not None:
        wall = schedule.next_wall(wall)
        # In the second pass of an overlap, the named times ahead were due in its first one.
        if wall is not None and (at := instant_of(wall, zone)) > after:
            return at
    return None


def _next_rhythm(schedule: Cron, zone: ZoneInfo, after: datetime) -> datetime | None:
    """Walk from one offset to the next: within one, wall time runs as elapsed time does."""
    start, wall = after, wall_of(after, zone)
    while True:
        following = schedule.next_wall(wall)
        if following is None:
            return None
        offset = start.astimezone(zone).utcoffset() or timedelta(0)
        at = (following - offset).replace(tzinfo=UTC)
        change = next_change(start, at, zone)
        if change is None:
            return at
        start, wall = change, wall_of(change, zone) - _TICK
