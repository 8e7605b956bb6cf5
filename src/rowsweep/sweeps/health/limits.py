"""The limits of a signal: read from what an operator writes, and written as one reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from rowsweep.options import count, duration, finite, format_duration, invalid_option

_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s?(B|kB|MB|GB|TB)")
_BYTES: Final = {"B": 1, "kB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}
_SHARE: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?)\s?%")
SWITCHES: Final = ("slow", "hold")


def size(value: object, *, option: str) -> float:
    """Parse an amount of bytes such as "512MB" (B, kB, MB, GB, TB in steps of 1024, as Postgres has them)."""
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None or float(found[1]) <= 0:
        raise invalid_option(option, 'an amount of bytes such as "512MB" (B, kB, MB, GB, TB)', value, '"1GB"')
    return float(found[1]) * _BYTES[found[2]]


def share(value: object, *, option: str) -> float:
    """Parse a share such as "80%"."""
    found = _SHARE.fullmatch(value) if isinstance(value, str) else None
    if found is None or not 0 < float(found[1]) <= 100:
        raise invalid_option(option, 'a share such as "80%"', value, '"80%"')
    return float(found[1]) / 100


def seconds(value: object, *, option: str) -> float:
    """Parse a duration above zero."""
    parsed = duration(value, option=option).total_seconds()
    if parsed <= 0:
        raise invalid_option(option, "a duration above zero", value, '"10s"')
    return parsed


def shown_seconds(value: float) -> str:
    """Answer a duration to a tenth of a second, beyond a minute to the second."""
    return format_duration(timedelta(seconds=round(value) if value >= 60 else round(value, 1)))


def shown_size(value: float) -> str:
    """Answer an amount of bytes in the largest unit that fits."""
    unit = next((name for name in ("TB", "GB", "MB", "kB") if value >= _BYTES[name]), "B")
    return f"{value / _BYTES[unit]:.3g}{unit}"


@dataclass(frozen=True, slots=True)
class Unit:
    """What a signal is measured in: how a limit is read, how a value is written."""

    parse: Callable[..., float]
    shown: Callable[[float], str]


DURATION: Final = Unit(seconds, shown_seconds)
SIZE: Final = Unit(size, shown_size)
COUNT: Final = Unit(lambda value, option: float(count(value, option=option, minimum=1)), lambda value: f"{value:.0f}")
SHARE: Final = Unit(share, lambda value: f"{value * 100:.3g}%")
FACTOR: Final = Unit(
    lambda value, option: finite(value, option=option, minimum=1.1), lambda value: f"{value:.3g} times as long"
)
SWITCH: Final = Unit(lambda value, option: finite(value, option=option, minimum=1, maximum=1), lambda _: "any")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """From where on a value slows a sweep down, and from where on it holds it; None: never.

    `ignore` names standbys that are behind on purpose.
    """

    slow: float | None = None
    hold: float | None = None
    ignore: tuple[str, ...] = ()


def limits_of(value: object, unit: Unit, *, option: str) -> Limits:
    """Read limits: one value holds, and half of it slows down; or a mapping of `slow`, `hold` and `ignore`.

    A factor only holds: half of one may be what is usual.
    """
    if unit is SWITCH and value in SWITCHES:
        return Limits(slow=1.0) if value == "slow" else Limits(hold=1.0)
    if isinstance(value, Mapping):
        return _limits_in(value, unit, option)
    if unit is SWITCH:
        raise invalid_option(option, '"slow", "hold" or "off"', value, '"slow"')
    hold = unit.parse(value, option=option)
    return Limits(hold=hold, slow=hold if unit is FACTOR else hold / 2)


def _limits_in(given: Mapping[Any, Any], unit: Unit, option: str) -> Limits:
    expected = "a limit, or a mapping with slow, hold and ignore"
    ignored = given.get("ignore", ())
    if not given or set(given) - {"slow", "hold", "ignore"} or isinstance(ignored, str):
        raise invalid_option(option, expected, dict(given), '{"slow": "5s", "hold": "10s"}')
    if not all(isinstance(name, str) for name in ignored):
        raise invalid_option(f"{option}.ignore", "a list of names", ignored, '["delayed"]')
    slow, hold = (
        None if given.get(name) is None else unit.parse(given[name], option=f"{option}.{name}")
        for name in ("slow", "hold")
    )
    if slow is None and hold is None:
        raise invalid_option(option, expected, dict(given), '{"slow": "5s", "hold": "10s"}')
    if slow is not None and hold is not None and slow > hold:
        raise invalid_option(option, "slow at or below hold", dict(given), '{"slow": "5s", "hold": "10s"}')
    return Limits(slow=slow, hold=hold, ignore=tuple(ignored))
