"""A cron expression, read by cronsim: which wall times it names."""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Final

from rowsweep.errors import InvalidDeclaration, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cronsim import CronSim

ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS: Final = (("minute", 60), ("hour", 24), ("day-of-month", 31), ("month", 12), ("day-of-week", 7))
# The rarest schedule, such as a weekday on 29 February across a century without one, is due within this.
_YEARS: Final = 50
_START: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - a wall time has no zone


class Cron:
    """The wall times of an expression.

    Where day-of-month and day-of-week are both given, either may match; where one begins with `*`, both must, as in
    Debian's cron. `is_rhythm` says that minute or hour begins with `*`: the schedule repeats with elapsed time, and
    is not tied to fixed wall times.
    """

    def __init__(self, parsed: CronSim, fields: Sequence[str]) -> None:
        self._parsed = parsed
        self._times = [(hour, minute) for hour in sorted(parsed.hours) for minute in sorted(parsed.minutes)]
        self.is_rhythm = fields[0].startswith("*") or fields[1].startswith("*")

    def next_wall(self, after: datetime) -> datetime | None:
        """Answer the first named wall time later than `after` (both without a zone), None within 50 years."""
        index = bisect_right(self._times, (after.hour, after.minute))
        day = after.replace(hour=0, minute=0, second=0, microsecond=0)
        if index == len(self._times) or not self._has(day):
            found = self._next_day(day)
            if found is None:
                return None
            day, index = found, 0
        hour, minute = self._times[index]
        return day.replace(hour=hour, minute=minute)

    def _next_day(self, day: datetime) -> datetime | None:
        try:
            last = day.replace(year=day.year + _YEARS, day=1)
            while day < last:
                day += timedelta(days=1)
                if day.month not in self._parsed.months:
                    day = (day.replace(day=1) + timedelta(days=31)).replace(day=1) - timedelta(days=1)
                elif self._parsed.match_day(day):
                    return day
        except (OverflowError, ValueError):
            pass  # the calendar ends with the year 9999
        return None

    def _has(self, day: datetime) -> bool:
        return day.month in self._parsed.months and self._parsed.match_day(day)


@cache
def cron_of(cron: str) -> Cron:
    """Read five fields or an alias; InvalidDeclaration says which field is at fault."""
    from cronsim import CronSim, CronSimError

    text = _expanded(cron)
    fields = text.upper().split()
    if len(fields) != len(_FIELDS):
        raise _refused(cron, f"it has {len(fields)} fields, not five", 'cron="0 9 * * *"')
    try:
        parsed = CronSim(text, _START)
    except CronSimError as error:
        raise _refused(cron, _reason(str(error), fields), 'cron="0 9 * * *"') from error
    for field, (name, size) in zip(fields, _FIELDS, strict=True):
        for part in field.split(","):
            step = part.partition("/")[2]
            if step and int(step) > size:
                raise _refused(cron, f"the step {step} of its {name} field is longer than the field", f"*/{size}")
    made = Cron(parsed, fields)
    if made.next_wall(_START) is None:
        raise _refused(cron, f"no day within {_YEARS} years is one of its days", 'cron="0 0 1 * *"')
    return made


def _expanded(cron: str) -> str:
    text = cron.strip()
    if not text.startswith("@"):
        return text
    if text.lower() not in ALIASES:
        near = did_you_mean(text, ALIASES)
        raise _refused(cron, f"there is no alias {text}", near or f"one of {', '.join(ALIASES)}")
    return ALIASES[text.lower()]


def _reason(said: str, fields: Sequence[str]) -> str:
    for field, (name, _) in zip(fields, _FIELDS, strict=True):
        if said == f"Bad {name}":
            return f"its {name} field is {field}"
    return said


def _refused(cron: str, why: str, fix: str) -> InvalidDeclaration:
    return InvalidDeclaration(f"The cron {cron!r} cannot be used: {why}.", fix=fix, meta={"field": "cron"})
