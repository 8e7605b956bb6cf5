"""The leader's fold of the counters: due when the lead is gained, and once after each hour that closes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rowsweep.telemetry.events import emit

if TYPE_CHECKING:
    from rowsweep.clock import Clock
    from rowsweep.queue.stores.counters import CounterStore
    from rowsweep.queue.stores.schedules import Lease

_AFTER_A_FAILURE_SECONDS: Final = 60.0
_EARLIEST_SECONDS: Final = 1.0


class Folds:
    """Fold what has closed, and remember for how long nothing can be due; the database's clock says so.

    A driver without counters has nothing to fold. A fold that fails is reported and tried again a minute later.
    """

    def __init__(self, store: CounterStore | None, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._not_before = float("-inf")

    def begin(self) -> None:
        """Be due: the lead was gained, and nobody may have folded for long."""
        self._not_before = float("-inf")

    def is_due(self) -> bool:
        """Say whether a bucket may have closed since the last fold."""
        return self._store is not None and self._clock.monotonic() >= self._not_before

    def make(self, lease: Lease | None) -> bool:
        """Fold, and renew the lease where there is one; say whether it was ours, False where the fold failed."""
        if self._store is None:
            return False
        seconds: float | None = _AFTER_A_FAILURE_SECONDS
        folded = None
        try:
            folded = self._store.rollup_counters(lease=lease)
            seconds = None if folded is None else max(folded.next_in_seconds, _EARLIEST_SECONDS)
        except Exception as error:  # noqa: BLE001 - reported; counters must not keep tasks from being fired
            emit("jobs.scheduler.tick-failed", error=error)
        if seconds is not None:
            self._not_before = self._clock.monotonic() + seconds
        return folded is not None
