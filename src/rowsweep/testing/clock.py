"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from rowsweep.errors import InvalidOption
from rowsweep.options import duration, invalid_option
from rowsweep.spelling import spelled

_START = datetime(2025, 1, 1, tzinfo=UTC)


@spelled
class FakeClock:
    """Stand in for a `Clock`: wall and monotonic time move together, and only by `advance` and `move_to`."""

    def __init__(self, start: datetime = _START) -> None:
        self._now = _utc(start, "start")
        self._monotonic = 0.0
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """Answer the wall time, aware and in UTC."""
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        """Answer the seconds advanced so far."""
        with self._lock:
            return self._monotonic

    def advance(self, by: timedelta | str) -> datetime:
        """Move both clocks forward, `by` as in `"10s"`; answer the new wall time."""
        span = duration(by, option="by")
        with self._lock:
            self._now += span
            self._monotonic += span.total_seconds()
            return self._now

    def move_to(self, at: datetime) -> None:
        """Set the wall time alone, backwards too, as a machine's clock can be set; monotonic time stays."""
        moved = _utc(at, "at")
        with self._lock:
            self._now = moved


def _utc(value: datetime, option: str) -> datetime:
    if value.tzinfo is None:
        raise _naive(value, option)
    return value.astimezone(UTC)


def _naive(value: datetime, option: str) -> InvalidOption:
    return invalid_option(option, "an aware datetime", value, "datetime(2025, 1, 1, tzinfo=UTC)")
