"""The signals that end a command: the first is asked for politely, a second Ctrl-C stops at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from rowsweep.app.app import App

INTERRUPTED: Final = 130
TERMINATED: Final = 143
_SHOW_CURSOR: Final = "\x1b[?25h"


class Signals:
    """Catch SIGINT and SIGTERM in a `with` block, and wait without missing one.

    A second SIGINT leaves the process at once: `at_once` is called, nothing is waited for.
    """

    def __init__(self, at_once: Callable[[], None] | None = None) -> None:
        self._at_once = at_once
        self._arrived = threading.Event()
        self._former: dict[signal.Signals, Any] = {}
        self.is_interrupted = False
        self.is_terminated = False

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._former[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)

    @property
    def name(self) -> str | None:
        """The signal that came first to be answered, None while none has."""
        if self.is_terminated:
            return "SIGTERM"
        return "SIGINT" if self.is_interrupted else None

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for a signal; answer whether one has come since the last wait."""
        arrived = self._arrived.wait(seconds)
        self._arrived.clear()
        return arrived

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            self.is_terminated = True
        elif self.is_interrupted:
            leave_at_once(self._at_once)
        else:
            self.is_interrupted = True
        self._arrived.set()


def leave_at_once(before: Callable[[], None] | None = None) -> None:
    """End the process now, with the code of an interrupt; a hidden cursor is shown again."""
    try:
        if sys.stdout.isatty():
            sys.stdout.write(f"{_SHOW_CURSOR}\n")
            sys.stdout.flush()
        sys.stderr.write("\nStopped at once: the batch in flight rolls back, the lease lapses by itself.\n")
        if before is not None:
            before()
    finally:
        os._exit(INTERRUPTED)


def leave_server(app: App) -> None:
    """Give up this process's share in the embedded server, which a process that ends at once would leave running."""
    if app.embedded is not None:
        app.embedded.leave()
