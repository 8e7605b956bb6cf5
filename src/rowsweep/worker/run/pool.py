"""The run threads of one queue."""

from __future__ import annotations

import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rowsweep.worker.flights import Flight

# A claim is made once no more than this part of the threads' number waits, the other part lasting meanwhile; and where
# it may bring this part of it, so that beside short runs there is always one under way.
_ENOUGH: Final = 2
_MANY: Final = 4
_LOOK_SECONDS: Final = 0.005

_Then = Literal["work", "wait", "look", "end"]


class RunPool:
    """Work flights on up to `size` daemon threads, each started when it is first needed.

    A thread that takes a flight while others wait wakes one more thread, and is itself the next to take one where it
    is done first. The one that was woken takes a flight where the others are in their bodies still, and looks again
    every few milliseconds while they take one after the other: bodies that block have a thread each, those that do not
    share one, without a switch for each of them. A thread whose flight was left behind counts no more: another takes
    its place, and it ends with its body. No flight can begin while the pool `is_held`.
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
        self._came = threading.Event()
        self._working: dict[Flight, int] = {}
        self._threads = 0
        self._idle = 0
        self._busy = 0
        self._taken = 0
        self._taken_before = 0
        self._is_waking = False
        self._is_closed = False

    @property
    def free(self) -> int:
        """Answer how many more flights can begin at once."""
        return 0 if self._is_held() else self._size - self._busy

    @property
    def wants(self) -> bool:
        """Say whether a claim is worth its statement: not a small one while flights enough wait here for their turn."""
        if self._busy >= self._size or self._is_held():
            return False
        return _ENOUGH * len(self._waiting) <= self._size or _MANY * (self._size - self._busy) >= self._size

    def submit(self, flights: Sequence[Flight]) -> None:
        """Hand flights to the threads; where no thread can be started for them, they are refused."""
        with self._lock:
            self._waiting.extend(flights)
            self._busy += len(flights)
            was_waking = self._is_waking
            failed = self._wake()
        if was_waking:
            self._came.set()
        self._give_up(failed)

    def thread_of(self, flight: Flight) -> int | None:
        """Answer the id of the thread that works a flight."""
        return self._working.get(flight)

    def leave_behind(self, flight: Flight) -> None:
        """Give the place of a flight to another thread; its own ends when its body does."""
        with self._lock:
            is_left = self._forget(flight)
            self._threads -= is_left
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
        self._is_waking, self._taken_before = True, self._taken
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
        me = threading.get_ident()
        flight: Flight | None = None
        then: _Then = "wait"
        while then != "end":
            flight, then = self._turn(flight, me, is_woken=flight is None)
            if flight is not None:
                self._guarded_work(flight)
            elif then == "wait":
                self._wakes.get()
            elif then == "look":
                self._came.wait(_LOOK_SECONDS)

    def _guarded_work(self, flight: Flight) -> None:
        try:
            self._work(flight)
        except BaseException:
            with self._lock:
                self._threads -= self._forget(flight)
            raise

    def _turn(self, ended: Flight | None, me: int, *, is_woken: bool) -> tuple[Flight | None, _Then]:
        """Account for the flight that has ended, take the next one, and say what to do without one."""
        with self._lock:
            if ended is not None and not self._forget(ended):
                return None, "end"
            # A claim that was put off for what waited here is due once that has begun.
            was_wanted = ended is None and self.wants
            flight, then = self._take(me, is_woken=is_woken)
            failed = None if flight is None else self._wake()
            is_due = self.wants and not was_wanted
        self._give_up(failed)
        if is_due:
            self._freed(self._queue)
        return flight, then

    def _take(self, me: int, *, is_woken: bool) -> tuple[Flight | None, _Then]:
        if is_woken:
            if self._waiting and self._working and self._taken != self._taken_before:
                self._taken_before = self._taken
                self._came.clear()
                return None, "look"
            self._is_waking = False
        if self._waiting:
            flight = self._waiting.popleft()
            self._taken += 1
            self._working[flight] = me
            return flight, "work"
        if self._is_closed:
            return None, "end"
        self._idle += 1
        return None, "wait"

    def _forget(self, flight: Flight) -> bool:
        """Count a flight no more; answer whether it still counted."""
        is_counted = self._working.pop(flight, None) is not None
        self._busy -= is_counted
        return is_counted
