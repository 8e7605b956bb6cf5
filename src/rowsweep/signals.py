"""The signal that tells a run to stop, composed of the signals of everything that may stop it."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Final, Self

from rowsweep.errors import Interrupted, RowsweepError

_logger = logging.getLogger("rowsweep")
_NO_CALLBACKS: Final[dict[object, Callable[[], object]]] = {}
_aborts: Final = itertools.count(1)

Reason = RowsweepError | Callable[[], RowsweepError]


class RunSignal:
    """Tell a run that it must stop (`aborted`, for a `reason`) or may stop early (`draining`).

    Safe from any thread. A signal handler must not call it directly, as the interrupted thread may hold the lock.
    """

    # Of the class, and an instance's own once they are something else: one is made for every run.
    _is_aborted = False
    _is_following = False
    _draining = False
    _aborted_as = 0
    _reason: Reason | None = None
    _waited_for: threading.Event | None = None
    _parents: tuple[RunSignal, ...] = ()
    _callbacks = _NO_CALLBACKS

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @classmethod
    def composed(cls, *parents: RunSignal) -> Self:
        """Make a signal that is aborted with the first of its parents, and draining while any of them is.

        It asks its parents whenever it is asked, and listens to them once it is waited for or is to call back: call
        `dispose` (or leave its `with` block) when the run has settled, as each parent may hold a listener.
        """
        signal = cls.__new__(cls)
        signal._lock = parents[0]._lock if parents else threading.Lock()
        signal._parents = parents
        for parent in parents:
            if parent.aborted:
                signal._follow(parent)
        return signal

    @property
    def aborted(self) -> bool:
        """Answer whether the run must stop now."""
        if self._is_aborted:
            return True
        for parent in self._parents:
            if parent._is_aborted or (parent._parents and parent.aborted):
                return self._follows_abort()
        return False

    @property
    def reason(self) -> RowsweepError | None:
        """Answer why the run was aborted; the first reason stays."""
        if not self.aborted:
            return None
        reason = self._reason
        if callable(reason):
            reason = self._reason = reason()
        return reason

    @property
    def draining(self) -> bool:
        """Answer whether the process wants to end, so that a long body may stop early; not yet an abort."""
        if self._draining:
            return True
        for parent in self._parents:  # noqa: SIM110 - `any` takes three times as long, and each run's end asks
            if parent.draining:
                return True
        return False

    def set_draining(self) -> None:
        """Ask for an early stop; aborts nothing."""
        self._draining = True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds for the abort; answer whether it came. The sleep of a body that can stop."""
        self._listen()
        with self._lock:
            if self._is_aborted:
                return True
            self._waited_for = waited_for = self._waited_for or threading.Event()
        return waited_for.wait(timeout)

    def raise_if_aborted(self) -> None:
        """Raise `Interrupted`, carrying the reason, when the run was aborted."""
        if self.aborted:
            raise Interrupted(self.reason) from self.reason

    def abort(self, reason: Reason) -> bool:
        """Abort with a reason and run the callbacks in this thread; answer whether this reason was the first.

        A callback that raises is logged, and the next one runs. A function is called for the reason once it is read.
        """
        return not self.aborted and self._abort(reason, next(_aborts))

    def on_abort(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back once on the abort, at once when it has come already; answer what removes the callback.

        A removed callback never starts any more; one that has started in another thread may still be running.
        """
        token = object()
        self._call_back(token, callback)
        return lambda: self._forget(token)

    def dispose(self) -> None:
        """Undo the composition: the parents hold no listener, and their later aborts no longer reach this signal."""
        if not self._parents:
            return
        self._draining = self.draining
        if not self._is_aborted:
            self._follows_abort()
        with self._lock:
            parents, self._parents = self._parents, ()
            was_following = self._is_following
        if was_following:
            self._unhear(parents)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dispose()

    def _abort(self, reason: Reason, number: int) -> bool:
        with self._lock:
            if self._is_aborted:
                return False
            self._reason = reason
            self._aborted_as = number
            self._is_aborted = True
            if self._waited_for is not None:
                self._waited_for.set()
            has_callbacks = bool(self._callbacks)
        while has_callbacks and (callback := self._next_callback()) is not None:
            _call(callback)
        return True

    def _follows_abort(self) -> bool:
        """Take over the abort of that parent that was aborted first; answer whether one was."""
        gone = [parent for parent in self._parents if parent.aborted]
        if gone:
            self._follow(min(gone, key=_number_of))
        return bool(gone)

    def _follow(self, parent: RunSignal) -> None:
        if parent.reason is not None:
            self._abort(parent.reason, parent._aborted_as)

    def _listen(self) -> None:
        """Hear of the parents' aborts from now on, as somebody waits for them."""
        with self._lock:
            parents = () if self._is_following else self._parents
            self._is_following = True
        for parent in parents:
            parent._call_back(self, partial(self._follow, parent))
        if not self._parents:  # disposed of meanwhile
            self._unhear(parents)

    def _unhear(self, parents: Iterable[RunSignal]) -> None:
        for parent in parents:
            parent._forget(self)

    def _call_back(self, token: object, callback: Callable[[], object]) -> None:
        self._listen()
        with self._lock:
            waits = not self._is_aborted
            if waits and self._callbacks is _NO_CALLBACKS:
                self._callbacks = {token: callback}
            elif waits:
                self._callbacks[token] = callback
        if not waits:
            _call(callback)

    def _forget(self, token: object) -> None:
        with self._lock:
            self._callbacks.pop(token, None)

    def _next_callback(self) -> Callable[[], object] | None:
        # One at a time, so that a callback may still be removed while an earlier one runs.
        with self._lock:
            return self._callbacks.pop(next(iter(self._callbacks))) if self._callbacks else None


def _number_of(signal: RunSignal) -> int:
    return signal._aborted_as


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # a Ctrl-C of the user's, who is waiting for it to be heeded
        fields = {"callback": getattr(callback, "__qualname__", type(callback).__name__)}
        _logger.error("signals.callback.failed", extra={"fields": fields}, exc_info=error)
