"""Everything timed in a process: one seam to wait through, and loops on daemon threads that wait through it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Timers(Protocol):
    """Wait on a held condition until it is notified or the seconds have passed."""

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait; None waits for the notification alone."""
        ...


class RealTimers:
    """Wait in real time."""

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait on the condition."""
        condition.wait(seconds if seconds is None else min(max(seconds, 0.0), threading.TIMEOUT_MAX))


class Looper:
    """Repeat a step on one daemon thread: at once when poked, else after the seconds the step answers.

    A step that raises is reported and repeated after what `failed` answers, so nothing it meets ends the loop.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float | None],
        *,
        timers: Timers,
        failed: Callable[[BaseException], float | None],
    ) -> None:
        self._name = name
        self._step = step
        self._timers = timers
        self._failed = failed
        self._condition = threading.Condition()
        self._is_poked = False
        self._is_stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, once."""
        is_started = self._thread is not None
        if is_started:
            return
        with self._condition:
            if self._thread is None and not self._is_stopping:
                self._thread = threading.Thread(target=self._run, name=f"rowsweep-{self._name}", daemon=True)
                self._thread.start()

    def poke(self) -> None:
        """Repeat the step at once, or once more if it is under way."""
        if self._is_poked:
            return  # taken back only before a step begins, which then sees what the caller did first
        with self._condition:
            self._is_poked = True
            self._condition.notify_all()

    def stop(self, timeout: float | None = None) -> bool:
        """End the loop after the step under way; answer whether its thread has ended within the seconds."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout)
        return not thread.is_alive()

    def _run(self) -> None:
        while not self._is_stopping:
            self._wait(self._guarded_step())

    def _guarded_step(self) -> float | None:
        try:
            return self._step()
        except BaseException as error:  # noqa: BLE001 - reported by `failed`; the loop outlives a SystemExit too
            return self._failed(error)

    def _wait(self, seconds: float | None) -> None:
        with self._condition:
            if not (self._is_poked or self._is_stopping) and (seconds is None or seconds > 0):
                self._timers.wait(self._condition, seconds)
            self._is_poked = False
