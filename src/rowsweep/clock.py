"""The two clocks: wall time through an injected `Clock`, and the real monotonic clock for deadlines."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tell the time; the one way to read it, so that a frozen clock cannot be bypassed."""

    def now(self) -> datetime:
        """Answer the wall time, aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Answer seconds that only ever grow; only differences mean something."""
        ...


class SystemClock:
    """Tell the machine's own time."""

    def now(self) -> datetime:
        """Answer the wall time, aware and in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Answer seconds that only ever grow; only differences mean something."""
        return time.monotonic()


def real_monotonic() -> float:
    """Answer the machine's monotonic seconds whatever clock is injected: what a `deadline_at` is a reading of."""
    return time.monotonic()


def real_seconds_until(deadline_at: float | None) -> float | None:
    """Answer what is left until a reading of `real_monotonic`, never below zero; `None` is no deadline."""
    return None if deadline_at is None else max(0.0, deadline_at - real_monotonic())
