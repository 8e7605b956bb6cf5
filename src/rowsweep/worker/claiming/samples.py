"""When a look also samples how deep the queues are, and what becomes of the sample."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from rowsweep.telemetry.events import emit
from rowsweep.telemetry.instruments import is_metered, record_depths

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowsweep.queue.stores.health import HealthStore
    from rowsweep.queue.stores.workers import Look
    from rowsweep.worker.equipment import Equipment

_REST_SECONDS: Final = 300.0


class Samples:
    """Let announcing looks sample, where figures go anywhere.

    A look counts only so many rows, since claims wait for it. Where a queue is deeper, it is counted on a thread of
    its own, over a connection that no claim needs; never twice at once. After a look that failed with a sample there
    is none for a while: the look must not fail with it each time.
    """

    def __init__(self, equipment: Equipment) -> None:
        self._worker_id = equipment.worker_id
        self._driver = equipment.driver
        self._clock = equipment.clock
        self._not_before = float("-inf")
        self._counting = threading.Lock()

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
            health = self._driver.stores().health if any(depth.is_capped for depth in seen.depths) else None
            if health is None:
                record_depths(seen.depths)
            elif self._counting.acquire(blocking=False):
                threading.Thread(target=self._count, args=[health], name="rowsweep-depths", daemon=True).start()
        return seen

    def _count(self, health: HealthStore) -> None:
        try:
            record_depths(health.depths())
        except Exception as error:  # noqa: BLE001 - a figure that is missing for once keeps nobody from working
            emit("jobs.worker.tick-failed", worker_id=self._worker_id, error=error)
        finally:
            self._counting.release()
