"""The run threads of one queue."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowsweep.worker.flights import Flight


class RunPool:
    """Work flights on up to `size` daemon threads, each started when it is first needed.

    A thread whose flight was left behind counts no more: another takes its place, and it ends with its body. No flight
    can begin while the pool `is_held`.
    """

    def __init__(
        self,
        queue: str,
        size: int,
        work: Callable[[Flight], None],
        freed: Callable[[str], None],
        *,
        is_held: Callable[[], bool] = lambda: False,
    ) -> None:
        self._queue = queue
        self._size = size
        self._work = work
        self._freed = freed
        self._is_held = is_held
        self._lock = threading.Lock()
        self._waiting: SimpleQueue[Flight | None] = SimpleQueue()
        self._working: dict[Flight, int] = {}
        self._threads = 0
        self._busy = 0

    @property
    def free(self) -> int:
        """Answer how many more flights can begin at once."""
        return 0 if self._is_held() else self._size - self._busy

    def submit(self, flight: Flight) -> None:
        """Hand a flight to a free thread."""
        with self._lock:
            if self._busy == self._threads:
                threading.Thread(target=self._serve, name=f"rowsweep-run-{self._queue}", daemon=True).start()
                self._threads += 1
            self._busy += 1
        self._waiting.put(flight)

    def thread_of(self, flight: Flight) -> int | None:
        """Answer the id of the thread that works a flight."""
        return self._working.get(flight)

    def leave_behind(self, flight: Flight) -> None:
        """Give the place of a flight to another thread; its own ends when its body does."""
        with self._lock:
            is_left = self._working.pop(flight, None) is not None
            self._threads -= is_left
            self._busy -= is_left
        if is_left:
            self._freed(self._queue)

    def close(self) -> None:
        """Let each thread end once it is free."""
        for _ in range(self._threads):
            self._waiting.put(None)

    def _serve(self) -> None:
        is_counted = True
        while is_counted and (flight := self._waiting.get()) is not None:
            with self._lock:
                self._working[flight] = threading.get_ident()
            try:
                self._work(flight)
            finally:
                with self._lock:
                    is_counted = self._working.pop(flight, None) is not None
                    self._busy -= is_counted
                del flight  # a thread that waits holds nothing of the last run
                if is_counted:
                    self._freed(self._queue)
