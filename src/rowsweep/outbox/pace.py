"""How long a relay waits where nothing wakes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowsweep.clock import Clock
    from rowsweep.outbox.options import RelayOptions

_SOONEST_SECONDS: Final = 0.05


class Pace:
    """Double the wait from the floor while nothing is found, up to a ceiling that is high while a wake is proven.

    After a failure no wake shortens the pause: a database that is away is not asked more often for being written to.
    """

    def __init__(self, options: RelayOptions, clock: Clock, is_awake: Callable[[], bool]) -> None:
        self._options = options
        self._clock = clock
        self._is_awake = is_awake
        self._interval = options.seconds("poll_floor")
        self._not_before = float("-inf")

    def restart(self) -> None:
        """Begin at the floor again."""
        self._interval = self._options.seconds("poll_floor")

    def next_in(self, due_in: float | None, *, found: bool) -> float:
        """Answer the next wait, no longer than until the next row is due."""
        if found:
            self.restart()
        ceiling = self._options.seconds("poll_with_wake" if self._is_awake() else "poll")
        waits = min(self._interval, ceiling)
        self._interval = min(waits * 2, ceiling)
        return waits if due_in is None else min(waits, max(due_in, _SOONEST_SECONDS))

    def fail(self) -> float:
        """Answer the pause after a failed pass, twice the one before."""
        waits = min(self._interval, self._options.seconds("poll"))
        self._interval = waits * 2
        self._not_before = self._clock.monotonic() + waits
        return waits

    def may_look(self) -> bool:
        """Say whether the pause after a failure is over."""
        return self.rest() <= 0

    def rest(self) -> float:
        """Answer what is left of it."""
        return self._not_before - self._clock.monotonic()
