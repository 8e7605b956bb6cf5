"""The time zone of a task: an IANA id, and where its offset changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Final

from rowsweep.errors import InvalidDeclaration, nearest

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

# What the folder of zone files has besides the IANA ids: this machine's own zone, and copies that count leap seconds.
_NOT_IDS: Final = ("localtime", "posixrules", "posix/", "right/")
# No zone has changed its offset twice within six days.
_STEP: Final = timedelta(days=2)
_RESOLUTION: Final = timedelta(seconds=1)


@cache
def zone_of(tz: str) -> ZoneInfo:
    """Answer the zone of an IANA id; InvalidDeclaration, with the nearest ids, where there is none."""
    from zoneinfo import ZoneInfo

    try:
        if tz.startswith(_NOT_IDS):
            raise ValueError(tz)
        return ZoneInfo(tz)
    except (KeyError, ValueError, OSError):
        near = _nearest_ids(tz)
        raise InvalidDeclaration(
            f"There is no IANA time zone {tz!r} (nearest: {', '.join(near) or 'none is close'}).",
            fix=f'tz="{near[0] if near else "Europe/London"}"',
            meta={"field": "tz", "nearest": near},
        ) from None


def wall_of(at: datetime, zone: ZoneInfo) -> datetime:
    """Answer what the clocks of the zone show at an instant, without a zone."""
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


def instant_of(wall: datetime, zone: ZoneInfo) -> datetime:
    """Answer when the clocks first show this time; where a gap skips it, the gap's end."""
    at = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if wall_of(at, zone) == wall:
        return at
    # PEP 495: in a gap, fold=0 counts with the offset before it, fold=1 with the one after it.
    return _change_between(wall.replace(tzinfo=zone, fold=1).astimezone(UTC), at, zone)


def next_change(after: datetime, until: datetime, zone: ZoneInfo) -> datetime | None:
    """Answer the first instant in `(after, until]` from which on another offset holds than at `after`."""
    offset = after.astimezone(zone).utcoffset()
    start = after
    while start < until:
        end = min(start + _STEP, until)
        if end.astimezone(zone).utcoffset() != offset:
            return _change_between(start, end, zone)
        start = end
    return None


def _change_between(start: datetime, end: datetime, zone: ZoneInfo) -> datetime:
    """Answer the instant at which the offset turns from the one at `start` to another, by halving."""
    offset = start.astimezone(zone).utcoffset()
    low, high = start.replace(microsecond=0), end
    while high - low > _RESOLUTION:
        middle = low + timedelta(seconds=(high - low) // _RESOLUTION // 2 or 1)
        if middle >= high:
            break
        if middle.astimezone(zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return high.replace(microsecond=0)


def _nearest_ids(tz: str) -> list[str]:
    from zoneinfo import available_timezones

    ids = sorted(available_timezones())
    cities = [known for known in ids if known.rpartition("/")[2].lower() == tz.lower().replace(" ", "_")]
    return cities or nearest(tz, ids)
