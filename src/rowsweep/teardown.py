"""One teardown, however many ask for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rowsweep.clock import real_seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable


class Teardown:
    """Let the first caller tear down while the others wait for it; once that has settled, the next is a first again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._settled: threading.Event | None = None

    def run(self, tear_down: Callable[[], None], deadline_at: float | None) -> None:
        """Tear down, or wait until the teardown under way has settled or the deadline has come."""
        with self._lock:
            under_way = self._settled
            mine = self._settled = under_way or threading.Event()
        if under_way is not None:
            under_way.wait(real_seconds_until(deadline_at))
            return
        try:
            tear_down()
        finally:
            with self._lock:
                self._settled = None
            mine.set()
