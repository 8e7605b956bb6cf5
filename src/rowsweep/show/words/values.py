"""Write numbers, rates, lengths of time, instants and progress as people read them."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, Final, TypeGuard

from rowsweep.show.words.clean import one_line

_SCALES: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_BAR_CELLS: Final = 20
_SPANS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def number(value: int) -> str:
    """Answer a count with its thousands apart: `1,234,567`."""
    return f"{value:,}"


def rate(per_second: float) -> str:
    """Answer a rate in three digits: `950/s`, `12.3 k/s`, `1.25 M/s`."""
    for scale, letter in _SCALES:
        if per_second >= scale * 0.9995:
            return f"{_three_digits(per_second / scale)} {letter}/s"
    return f"{_three_digits(per_second)}/s"


def span(seconds: float) -> str:
    """Answer a length of time in its two largest units: `0.8 s`, `12 s`, `3 min 5 s`, `2 h 5 min`."""
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s"
    left = round(seconds)
    parts: list[str] = []
    for length, unit in _SPANS:
        count, rest = divmod(left, length)
        if not count and parts:
            break
        if count:
            parts.append(f"{count:,} {unit}")
            left = rest
        if len(parts) == 2:
            break
    return " ".join(parts)


def milliseconds(value: float) -> str:
    """Answer a batch's length: `0.4 ms`, `21 ms`, `1.3 s`."""
    if value >= 999.5:
        return span(value / 1000)
    return f"{value:.0f} ms" if value >= 9.5 else f"{value:.1f} ms"


def percent(value: float) -> str:
    """Answer whole percent, rounded down: what is not finished never reads 100 %."""
    return f"{math.floor(value)} %"


def instant(at: datetime | None) -> str:
    """Answer an instant to the second in UTC, nothing for none."""
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"


def progress(said: Any) -> str:
    """Answer a job's progress in one line: `██████████░░░░░░░░░░ 50 % · 5 of 10 · message`.

    Without a usable total there is no bar; none passes its end.
    """
    if not isinstance(said, dict):
        return ""
    current, total, message = (said.get(name) for name in ("current", "total", "message"))
    parts = []
    if _is_amount(current) and _is_amount(total) and total > 0:
        share = min(current / total, 1.0)
        full = int(share * _BAR_CELLS)
        parts = [f"{'█' * full}{'░' * (_BAR_CELLS - full)} {percent(share * 100)}", f"{current:,} of {total:,}"]
    elif _is_amount(current):
        parts = [f"{current:,}"]
    if isinstance(message, str) and message:
        parts.append(one_line(message))
    return " · ".join(parts)


def _is_amount(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _three_digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}".rstrip("0").rstrip(".")
