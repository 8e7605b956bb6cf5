"""How fast a sweep may go: a rate in rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rowsweep.options import Rate, rate
from rowsweep.spelling import spelled

if TYPE_CHECKING:
    from rowsweep.clock import Clock

NO_RATE: Final = "none"


@spelled
class Pacer:
    """Let the batch after one of r rows start r / rate after that one started; unused time is not saved up.

    The limit may change between and during waits; without one nothing waits. Passes side by side, as many as there are
    `shares`, go at an even part of it each.
    """

    def __init__(self, limit: str | Rate | None, clock: Clock, *, shares: int = 1) -> None:
        self.limit = None if limit is None else rate(limit, option="rate")
        self._clock = clock
        self._shares = shares
        self._rows = 0
        self._started = clock.monotonic()

    def change(self, limit: str | Rate | None) -> None:
        """Go on at another rate, from the batch before on."""
        self.limit = None if limit is None else rate(limit, option="rate")

    def begin(self) -> None:
        """Note that a batch starts now."""
        self._started = self._clock.monotonic()

    def done(self, rows: int) -> None:
        """Note how many rows the batch had."""
        self._rows = rows

    def wait_seconds(self) -> float:
        """Answer how long the next batch has to wait."""
        if self.limit is None:
            return 0.0
        return max(self._started + self._rows * self._shares / self.limit.per_second - self._clock.monotonic(), 0.0)
