"""How long the claim loop waits where nothing wakes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowsweep.clock import Clock
    from rowsweep.worker.options import WorkerOptions

SOONEST_SECONDS: Final = 0.01


class Pace:
    """Double the wait from the floor while nothing is found, up to a ceiling that is high while a wake is proven."""

    def __init__(self, options: WorkerOptions, clock: Clock, is_awake: Callable[[], bool]) -> None:
        self._options = options
        self._clock = clock
        self._is_awake = is_awake
        self._interval = options.floor_seconds
        self._look_at = float("inf")

    @property
    def ceiling_seconds(self) -> float:
        """Answer the longest wait there is now."""
        return self._options.awake_seconds if self._is_awake() else self._options.poll_seconds

    def restart(self) -> float:
        """Begin at the floor again, and answer it."""
        self._interval = self._options.floor_seconds
        return self._interval

    def look_within(self, seconds: float) -> None:
        """Wait no longer than this from now on: what was handed back falls due then."""
        self._look_at = min(self._look_at, self._clock.monotonic() + seconds)

    def next_in(self, *bounds: float | None, found: bool) -> float:
        """Answer the next wait, none of the bounds exceeded that are known."""
        waits = min(self._options.floor_seconds if found else self._interval, self.ceiling_seconds)
        self._interval = self._options.floor_seconds if found else min(waits * 2, self.ceiling_seconds)
        known = [bound for bound in (*bounds, self._look_in()) if bound is not None]
        return min([waits, *(max(bound, SOONEST_SECONDS) for bound in known)])

    def _look_in(self) -> float | None:
        now = self._clock.monotonic()
        if self._look_at <= now:
            self._look_at = float("inf")
        return None if self._look_at == float("inf") else self._look_at - now
