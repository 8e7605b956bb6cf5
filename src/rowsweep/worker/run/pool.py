"""The run threads of one queue."""

from __future__ import annotations

import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowsweep.worker.flights import Flight

# A claim brings more while less than this part of the threads' number waits: few claims, and none of them too late.
_ENOUGH: Final = 4


class RunPool:
    """Work flights on up to `size` daemon threads, each started when it is first needed.

    A thread that takes a flight while others wait wakes one more thread, and is itself the next to take one where it
    is done first: bodies that block have a thread each, those that do not share one, without a switch for each of them.
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
        refused: Callable[[Flight, RuntimeError], None],
        is_held: Callable[[], bool] = lambda: False,
    ) -> None:
        self._queue = queue
        self._size = size
        self._work = work
        self._freed = freed
        self._refused = refused
        self._is_held = is_held
        self._lock = threading.Lock()
        self._waiting: deque[Flight] = deque()
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._working: dict[Flight, int] = {}
        self._threads = 0
        self._idle = 0
        self._busy = 0
        self._is_waking = False
        self._is_closed = False

    @property
    def free(self) -> int:
        """Answer how many more flights can begin at once."""
        return 0 if self._is_held() else self._size - self._busy

    @property
    def wants(self) -> bool:
        """Say whether a claim is worth its statement: not while flights enough wait here for their turn."""
        return _ENOUGH * len(self._waiting) <= self._size and self.free > 0

    def submit(self, flight: Flight) -> None:
        """Hand a flight to the threads; where no thread can be started for it, it is refused."""
        with self._lock:
            self._waiting.append(flight)
            self._busy += 1
            failed = self._wake()
        self._give_up(failed)

    def thread_of(self, flight: Flight) -> int | None:
        """Answer the id of the thread that works a flight."""
        return self._working.get(flight)

    def leave_behind(self, flight: Flight) -> None:
        """Give the place of a flight to another thread; its own ends when its body does."""
        with self._lock:
            is_left = self._working.pop(flight, None) is not None
            self._threads -= is_left
            self._busy -= is_left
            failed = self._wake()
        self._give_up(failed)
        if is_left:
            self._freed(self._queue)

    def close(self) -> None:
        """Let each thread end once it is free."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._wakes.put(None)

    def _wake(self) -> RuntimeError | None:
        """Have one more thread look for a flight, where one waits and none is looking; answer why that failed."""
        if self._is_waking or not self._waiting:
            return None
        if self._idle:
            self._idle -= 1
            self._wakes.put(None)
        elif self._threads < self._size:
            thread = threading.Thread(target=self._serve, name=f"rowsweep-run-{self._queue}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                return error
            self._threads += 1
        else:
            return None
        self._is_waking = True
        return None

    def _give_up(self, failed: RuntimeError | None) -> None:
        """Refuse what waits for a thread that cannot be started: a body that blocks would hold it up."""
        if failed is None:
            return
        with self._lock:
            refused = list(self._waiting)
            self._waiting.clear()
            self._busy -= len(refused)
        for flight in refused:
            self._refused(flight, failed)

    def _serve(self) -> None:
        is_woken = is_counted = True
        while is_counted and (flight := self._take(is_woken=is_woken)) is not None:
            is_woken = False
            try:
                self._work(flight)
            finally:
                with self._lock:
                    is_counted = self._working.pop(flight, None) is not None
                    self._busy -= is_counted
                del flight  # a thread that waits holds nothing of the last run
                if is_counted and self.wants:
                    self._freed(self._queue)

    def _take(self, *, is_woken: bool) -> Flight | None:
        """Wait for a flight and answer it; None once the pool is closed and none waits."""
        while True:
            with self._lock:
                self._is_waking = self._is_waking and not is_woken
                had_enough = not self.wants
                flight = self._waiting.popleft() if self._waiting else None
                if flight is not None:
                    self._working[flight] = threading.get_ident()
                    failed = self._wake()
                elif self._is_closed:
                    return None
                else:
                    self._idle += 1
            if flight is not None:
                self._give_up(failed)
                if had_enough and self.wants:
                    self._freed(self._queue)  # a claim that was put off for what waited here is due now
                return flight
            self._wakes.get()
            is_woken = True
