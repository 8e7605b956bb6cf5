"""Cancelling the statement in flight when its run is aborted."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from rowsweep.signals import RunSignal

CANCEL_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 0.5


class cancel_on_abort:  # noqa: N801 - reads as the verb it is in a `with`
    """Cancel what the connection is doing when the signal is aborted, until the block is left.

    A block left after a cancel closes its connection: a late cancel may never reach somebody else's statement. One
    that does not come back within 5 s has its socket shut down. Does nothing for a connection without `cancel_safe`.
    """

    def __init__(self, signal: RunSignal, connection: Any) -> None:
        self._signal = signal
        self._connection = connection
        self._lock = threading.Lock()
        self._left = threading.Event()
        self._quiet = threading.Event()
        self._is_fired = False
        self._remove: Callable[[], None] | None = None

    @property
    def fired(self) -> bool:
        """Say whether a cancel was sent, so that the connection cannot be used any more."""
        return self._is_fired

    def __enter__(self) -> cancel_on_abort:
        if hasattr(self._connection, "cancel_safe"):
            self._remove = self._signal.on_abort(self._fire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._remove is not None:
            self._remove()
        with self._lock:
            self._left.set()
        if self._is_fired:
            self._quiet.wait()
            self._connection.close()

    def _fire(self) -> None:
        with self._lock:
            if self._left.is_set():
                return
            self._is_fired = True
        try:
            # In a thread of its own: whoever aborts has other runs to abort, and a cancel is a connection of its own.
            threading.Thread(target=self._cancel, name="rowsweep-cancel", daemon=True).start()
        except RuntimeError:  # an interpreter that is exiting starts no thread
            self._cancel()

    def _cancel(self) -> None:
        """Cancel again and again: the body may be between two statements, and go on to its next."""
        try:
            for _ in range(int(CANCEL_SECONDS / _AGAIN_SECONDS)):
                with suppress(Exception):  # a server that takes no cancel is given up on below
                    self._connection.cancel_safe(timeout=_AGAIN_SECONDS)
                if self._left.wait(_AGAIN_SECONDS):
                    return
            self._cut_off()
        finally:
            self._quiet.set()

    def _cut_off(self) -> None:
        """Shut the socket down below the library, which must not be closed under a thread that is waiting in it."""
        with suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as same:  # or it has ended
            same.shutdown(socket.SHUT_RDWR)
