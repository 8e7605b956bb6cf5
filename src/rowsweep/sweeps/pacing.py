"""How fast a sweep may go: a rate in rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowsweep.options import Rate, rate

if TYPE_CHECKING:
    from rowsweep.clock import Clock


class Pacer:
    """Let the batch after one of r rows start r / rate after that one started; unused time is not saved up."""

    def __init__(self, limit: str | Rate, clock: Clock) -> None:
        self.limit = rate(limit, option="rate")
        self._clock = clock
        self._next_at: float | None = None
        self._started = clock.monotonic()

    def begin(self) -> None:
        """Note that a batch starts now."""
        self._started = self._clock.monotonic()

    def done(self, rows: int) -> None:
        """Note how many rows the batch had."""
        self._next_at = self._started + rows / self.limit.per_second

    def wait_seconds(self) -> float:
        """Answer how long the next batch has to wait."""
        return 0.0 if self._next_at is None else max(self._next_at - self._clock.monotonic(), 0.0)
