"""Options parsed once and refused early: durations, rates, numbers, counts and choices."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rowsweep.errors import InvalidOption, nearest

_UNIT_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_UNIT_WORDS = {
    "ms": ("ms", "msec", "msecs", "milli", "millis", "millisecond", "milliseconds"),
    "s": ("s", "sec", "secs", "second", "seconds"),
    "m": ("m", "min", "mins", "minute", "minutes"),
    "h": ("h", "hr", "hrs", "hour", "hours"),
    "d": ("d", "day", "days"),
}
_UNIT_OF_WORD = {word: unit for unit, words in _UNIT_WORDS.items() for word in words}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_DURATION_TEXT = re.compile(rf"(?:{_DURATION_PART.pattern})+")
_LOOSE_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-z]*)")
_RATE_SECONDS = {"s": 1, "min": 60, "h": 3600}
_RATE_TEXT = re.compile(r"([0-9]+)/(s|min|h)")
_LOOSE_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:/|per)?([a-z]*)")
_LONGEST_SHOWN = 80
_LONGEST_NUMBER = 9
_MOST_ROWS = 2**63 - 1
_LONGEST_DAYS = 36_500


@dataclass(frozen=True, slots=True)
class Rate:
    """Hold at most `count` things in each `per_seconds`."""

    count: int
    per_seconds: int = 1

    def __post_init__(self) -> None:
        count(self.count, option="count", minimum=1)
        count(self.per_seconds, option="per_seconds", minimum=1)

    @property
    def per_second(self) -> float:
        """Answer the rate as a plain number of things in a second."""
        return self.count / self.per_seconds

    def __str__(self) -> str:
        units = {seconds: unit for unit, seconds in _RATE_SECONDS.items()}
        return f"{self.count}/{units.get(self.per_seconds, f'{self.per_seconds}s')}"


def duration(value: object, *, option: str) -> timedelta:
    """Parse a `timedelta` or text such as `"250ms"`, `"1h30m"`; a bare number lacks a unit and is refused.

    A hundred years are the longest: an instant so far from now still has a year that Python can tell.
    """
    expected = f'a timedelta or text such as "10s" or "1h30m" (ms, s, m, h, d), from zero to {_LONGEST_DAYS}d'
    span = _span(value)
    if span is not None and timedelta(0) <= span <= timedelta(_LONGEST_DAYS):
        return span
    too_long = span is not None and span > timedelta(0)
    near = None if too_long else _near_duration(value) or "10s"
    if near is None or (_span(near) or timedelta.max) > timedelta(_LONGEST_DAYS):
        near = f"{_LONGEST_DAYS}d"
    raise invalid_option(option, expected, value, f'"{near}"')


def _span(value: object) -> timedelta | None:
    if isinstance(value, timedelta):
        return timedelta(value.days, value.seconds, value.microseconds)
    if not isinstance(value, str) or not _DURATION_TEXT.fullmatch(value):
        return None
    parts = _DURATION_PART.findall(value)
    try:
        return sum((timedelta(seconds=float(n) * _UNIT_SECONDS[u]) for n, u in parts), timedelta(0))
    except OverflowError:
        return timedelta.max


def format_duration(value: timedelta) -> str:
    """Answer the shortest text that `duration` reads back as the same length."""
    if value < timedelta(0):
        return f"-{format_duration(-value)}"
    milliseconds, rest = divmod(value, timedelta(milliseconds=1))
    if value < timedelta(seconds=1) and value and not rest:
        return f"{milliseconds}ms"
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{n}{unit}" for n, unit in ((value.days, "d"), (hours, "h"), (minutes, "m")) if n]
    if value.microseconds:
        parts.append(f"{seconds}.{value.microseconds:06d}".rstrip("0") + "s")
    elif seconds or not parts:
        parts.append(f"{seconds}s")
    return "".join(parts)


def rate(value: object, *, option: str) -> Rate:
    """Parse a `Rate` or text such as `"2000/s"` or `"5/h"`; a bare number has no period and is refused."""
    if isinstance(value, Rate):
        return value
    if isinstance(value, str) and (match := _RATE_TEXT.fullmatch(value)) and 0 < float(match[1]) < 1e18:
        return Rate(int(match[1]), _RATE_SECONDS[match[2]])
    expected = 'a count above zero and a period, such as "2000/s" (s, min, h)'
    raise invalid_option(option, expected, value, f'"{_near_rate(value) or "2000/s"}"')


def finite(value: object, *, option: str, minimum: float | None = None, maximum: float | None = None) -> float:
    """Screen a finite number within its bounds, both inclusive."""
    expected = f"a finite number{_bounds(minimum, maximum)}"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise invalid_option(option, expected, value, _within(_number_in(value), 1.0, minimum, maximum))
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or _outside(number, minimum, maximum):
        near = None if math.isnan(number) else number
        raise invalid_option(option, expected, value, _within(near, 1.0, minimum, maximum))
    return number


def count(value: object, *, option: str, minimum: int, maximum: int | None = None) -> int:
    """Screen a whole number within its bounds, both inclusive; integral NumPy numbers come back as `int`."""
    if type(value) is int and minimum <= value and (maximum is None or value <= maximum):
        return value  # as nearly always
    expected = f"a whole number{_bounds(minimum, maximum)}"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        near = _number_in(value)
        whole = int(near) if near is not None and math.isfinite(near) else None
        raise invalid_option(option, expected, value, _within(whole, minimum, minimum, maximum))
    number = int(value)
    if _outside(number, minimum, maximum):
        raise invalid_option(option, expected, value, _within(number, minimum, minimum, maximum))
    return number


def row_count(value: object, *, option: str = "limit") -> int:
    """Screen how many rows are asked for: no more than Postgres can count."""
    return count(value, option=option, minimum=0, maximum=_MOST_ROWS)


def instant(value: object, *, option: str, works: str) -> datetime:
    """Screen an aware instant; one whose year in UTC Python cannot tell could be stored and never read again."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        try:
            value.astimezone(UTC)
        except OverflowError:
            expected = "an instant of the years 1 to 9999 in UTC"
            raise invalid_option(option, expected, value, works) from None
        return value
    raise invalid_option(option, "an aware datetime", value, works)


def one_of(value: object, choices: Sequence[str], *, option: str) -> str:
    """Screen a word against the words that are allowed."""
    for choice in choices:
        if isinstance(value, str) and value == choice:
            return choice
    near = nearest(value, choices) if isinstance(value, str) else []
    expected = "one of " + ", ".join(f'"{choice}"' for choice in choices)
    raise invalid_option(option, expected, value, f'"{(near or list(choices))[0]}"')


def invalid_option(option: str, expected: str, got: object, works: str) -> InvalidOption:
    """Answer the refusal of an option: what was expected, what came, and code for a value that works."""
    shown = f"{_shown(got)} ({type(got).__name__})"
    return InvalidOption(
        f"The option {option!r} must be {expected}; it was {shown}.",
        fix=f"{option}={works}",
        meta={"option": option, "expected": expected, "got": shown, "works": works},
    )


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - the refusal must come, whatever came in
        text = f"a value whose repr raises {type(error).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


def _outside(number: float, minimum: float | None, maximum: float | None) -> bool:
    return (minimum is not None and number < minimum) or (maximum is not None and number > maximum)


def _within(number: float | None, default: float, minimum: float | None, maximum: float | None) -> str:
    """Answer, as code, the allowed number that is nearest to the one that came."""
    near = default if number is None else number
    if minimum is not None and near < minimum:
        near = minimum
    if maximum is not None and near > maximum:
        near = maximum
    return repr(near if isinstance(near, int) or math.isfinite(near) else default)


def _bounds(minimum: float | None, maximum: float | None) -> str:
    if minimum is not None and maximum is not None:
        return f" from {minimum} to {maximum}"
    if minimum is not None:
        return f" of at least {minimum}"
    return "" if maximum is None else f" of at most {maximum}"


def _number_in(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | float | numbers.Real):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def _near_duration(value: object) -> str | None:
    """Guess the text that was meant: `10` → `10s`, `"5 minutes"` → `5m`."""
    loose = _loose(value)
    if not loose or not re.fullmatch(f"(?:{_LOOSE_PART.pattern})+", loose):
        return None
    parts = [(number, _UNIT_OF_WORD.get(word or "s")) for number, word in _LOOSE_PART.findall(loose)]
    if any(unit is None or len(number) > _LONGEST_NUMBER for number, unit in parts):
        return None
    return "".join(f"{number}{unit}" for number, unit in parts)


def _near_rate(value: object) -> str | None:
    """Guess the text that was meant: `2000` → `2000/s`, `"5 per minute"` → `5/min`, `0.5` → `30/min`."""
    match = _LOOSE_RATE.fullmatch(_loose(value))
    unit = _UNIT_OF_WORD.get((match[2] or "s") if match else "")
    if match is None or unit not in ("s", "m", "h") or len(match[1]) > _LONGEST_NUMBER:
        return None
    number, names = float(match[1]), {"s": "s", "m": "min", "h": "h"}
    if number.is_integer() and number > 0:
        return f"{int(number)}/{names[unit]}"
    hourly = number * 3600 / _UNIT_SECONDS[unit]
    for whole, name in ((hourly / 60, "min"), (hourly, "h")):
        if whole >= 1 and whole.is_integer():
            return f"{int(whole)}/{name}"
    return None


def _loose(value: object) -> str:
    if isinstance(value, str):
        return re.sub(r"[\s_,]", "", value[:_LONGEST_SHOWN].lower())
    number = _number_in(value)
    return "" if number is None else f"{number:.9g}"
