"""When a look also samples how deep the queues are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rowsweep.telemetry.instruments import is_metered, record_depths

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowsweep.clock import Clock
    from rowsweep.queue.records import Look

_REST_SECONDS: Final = 300.0


class Samples:
    """Let announcing looks sample, where figures go anywhere.

    A sample rides on a look, so one that failed is not tried again for a while: counting a backlog may take longer than
    a look is given, and the look must not fail with it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._not_before = float("-inf")

    def carried_by(self, look: Callable[[bool], Look], *, announces: bool) -> Look:
        """Look, with a sample where that may be taken, and record what was sampled."""
        samples = announces and is_metered() and self._clock.monotonic() >= self._not_before
        try:
            seen = look(samples)
        except Exception:
            if samples:
                self._not_before = self._clock.monotonic() + _REST_SECONDS
            raise
        if seen.depths is not None:
            record_depths(seen.depths)
        return seen
