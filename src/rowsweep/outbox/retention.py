"""Published rows of another database than the queue's: no purge reaches them, so their relay removes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rowsweep.clock import Clock
    from rowsweep.outbox.options import RelayOptions
    from rowsweep.queue.stores.outbox import OutboxPlace

EVERY_SECONDS: Final = 3_600.0
_BATCH_ROWS: Final = 1_000


class PublishedRows:
    """Remove, once an hour and in small batches, what was published long enough ago."""

    def __init__(self, place: OutboxPlace | None, options: RelayOptions, clock: Clock) -> None:
        self._place = place
        self._options = options
        self._clock = clock
        self._due_at = float("-inf")

    def remove(self) -> None:
        """Remove what is due, if the hour is over; the place's clock decides."""
        now = self._clock.monotonic()
        if self._place is None or now < self._due_at:
            return
        self._due_at = now + EVERY_SECONDS
        store, keep = self._place.retention, self._options.keep_span
        before, after = store.now() - keep, None
        while True:
            gone = store.remove("outbox", before=before, after=after, limit=_BATCH_ROWS)
            after = gone.last_at
            if gone.rows < _BATCH_ROWS:
                return
