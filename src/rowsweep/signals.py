"""The signal that tells a run to stop, composed of the signals of everything that may stop it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self

from rowsweep.errors import Interrupted, RowsweepError

_logger = logging.getLogger("rowsweep")


class RunSignal:
    """Tell a run that it must stop (`aborted`, for a `reason`) or may stop early (`draining`).

    Safe from any thread. A signal handler must not call it directly, as the interrupted thread may hold the lock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_aborted = False
        self._waited_for: threading.Event | None = None
        self._reason: RowsweepError | Callable[[], RowsweepError] | None = None
        self._draining = False
        self._callbacks: dict[object, Callable[[], object]] = {}
        self._parents: tuple[RunSignal, ...] = ()

    @classmethod
    def composed(cls, *parents: RunSignal) -> Self:
        """Make a signal that is aborted with the first of its parents, and draining while any of them is.

        Call `dispose` (or leave its `with` block) when the run has settled: until then each parent holds a listener.
        """
        signal = cls()
        signal._parents = parents
        for parent in parents:
            parent._call_back(signal, partial(signal._follow, parent))
        return signal

    @property
    def aborted(self) -> bool:
        """Answer whether the run must stop now."""
        return self._is_aborted

    @property
    def reason(self) -> RowsweepError | None:
        """Answer why the run was aborted; the first reason stays."""
        if callable(self._reason):
            self._reason = self._reason()
        return self._reason

    @property
    def draining(self) -> bool:
        """Answer whether the process wants to end, so that a long body may stop early; not yet an abort."""
        return self._draining or any(parent.draining for parent in self._parents)

    def set_draining(self) -> None:
        """Ask for an early stop; aborts nothing."""
        self._draining = True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds for the abort; answer whether it came. The sleep of a body that can stop."""
        with self._lock:
            if self._is_aborted:
                return True
            self._waited_for = waited_for = self._waited_for or threading.Event()
        return waited_for.wait(timeout)

    def raise_if_aborted(self) -> None:
        """Raise `Interrupted`, carrying the reason, when the run was aborted."""
        if self.aborted:
            raise Interrupted(self.reason) from self.reason

    def abort(self, reason: RowsweepError | Callable[[], RowsweepError]) -> bool:
        """Abort with a reason and run the callbacks in this thread; answer whether this reason was the first.

        A callback that raises is logged, and the next one runs. A function is called for the reason once it is read.
        """
        with self._lock:
            if self._is_aborted:
                return False
            self._reason = reason
            self._is_aborted = True
            if self._waited_for is not None:
                self._waited_for.set()
        while (callback := self._next_callback()) is not None:
            _call(callback)
        return True

    def on_abort(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back once on the abort, at once when it has come already; answer what removes the callback.

        A removed callback never starts any more; one that has started in another thread may still be running.
        """
        token = object()
        self._call_back(token, callback)
        return lambda: self._forget(token)

    def dispose(self) -> None:
        """Undo the composition: the parents hold no listener, and their later aborts no longer reach this signal."""
        self._draining = self.draining
        parents, self._parents = self._parents, ()
        for parent in parents:
            parent._forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dispose()

    def _call_back(self, token: object, callback: Callable[[], object]) -> None:
        with self._lock:
            waits = not self._is_aborted
            if waits:
                self._callbacks[token] = callback
        if not waits:
            _call(callback)

    def _forget(self, token: object) -> None:
        with self._lock:
            self._callbacks.pop(token, None)

    def _follow(self, parent: RunSignal) -> None:
        if parent.reason is not None:
            self.abort(parent.reason)

    def _next_callback(self) -> Callable[[], object] | None:
        # One at a time, so that a callback may still be removed while an earlier one runs.
        with self._lock:
            return self._callbacks.pop(next(iter(self._callbacks))) if self._callbacks else None


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception as error:
        fields = {"callback": getattr(callback, "__qualname__", type(callback).__name__)}
        _logger.error("signals.callback.failed", extra={"fields": fields}, exc_info=error)
