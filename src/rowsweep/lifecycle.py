"""The phases of a process that ends: accept → in-flight → close, under one drain budget."""

from __future__ import annotations

import atexit
import concurrent.futures
import logging
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, Protocol, TypedDict

from rowsweep.clock import real_monotonic, real_seconds_until
from rowsweep.errors import Draining
from rowsweep.options import duration, one_of
from rowsweep.spelling import spelled

Phase = Literal["running", "accept", "in-flight", "close", "closed"]
HookPhase = Literal["accept", "close"]
_HOOK_PHASES = ("accept", "close")
_logger = logging.getLogger("rowsweep")


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Tell a hook why the process ends and by when; `deadline_at` is a reading of the real monotonic clock."""

    reason: str
    deadline_at: float | None


class Readiness(TypedDict):
    """Answer a readiness probe; JSON-safe."""

    ready: bool
    phase: Phase
    in_flight: int


class Waitable(Protocol):
    """Be waited for as a `threading.Event` is: `True` once settled, `False` when the seconds ran out."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds, without end for `None`."""
        ...


Hook = Callable[[Shutdown], object]
Pending = Waitable | threading.Thread | concurrent.futures.Future[object]


@dataclass(frozen=True, slots=True, eq=False)
class _Registered:
    name: str
    hook: Hook


class _Work:
    """One piece of work; called, it is finished."""

    __slots__ = ("_lifecycle", "is_finished")

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self.is_finished = False

    def __call__(self) -> None:
        self._lifecycle._finish(self)


class Lifecycle:
    """Stop taking work, let work in flight finish within the budget, then close what was opened."""

    def __init__(self, deadline: timedelta | str | None = "25s") -> None:
        self._lock = threading.RLock()
        self._condition = threading.Condition(self._lock)
        self._hooks: dict[str, list[_Registered]] = {phase: [] for phase in _HOOK_PHASES}
        self._phase: Phase = "running"
        self._in_flight = 0
        self._runner: int | None = None
        self._closed = threading.Event()
        self.configure(deadline)

    def configure(self, deadline: timedelta | str | None) -> None:
        """Set the drain budget; `None` waits for as long as the work takes."""
        self._budget = None if deadline is None else duration(deadline, option="deadline")

    @property
    def budget(self) -> timedelta | None:
        """Answer the drain budget."""
        return self._budget

    def on(self, phase: HookPhase, name: str, hook: Hook) -> Callable[[], None]:
        """Register a hook of the accept phase (must not wait) or of the close phase; answer what removes it.

        Raises `Draining` once the shutdown has begun: what starts then would never be stopped.
        """
        one_of(phase, _HOOK_PHASES, option="phase")
        registered = _Registered(name, hook)
        with self._condition:
            if self._phase != "running":
                raise Draining(
                    f"{name!r} cannot start: the process is shutting down.",
                    fix='start it in a new process, or raise the budget: rs.configure_lifecycle(deadline="60s")',
                    meta={"phase": self._phase},
                )
            self._hooks[phase].append(registered)
        return lambda: self._remove(phase, registered)

    def names(self, phase: HookPhase) -> list[str]:
        """Answer the names of the hooks that are registered, in order."""
        with self._condition:
            return [registered.name for registered in self._hooks[phase]]

    def begin_work(self) -> Callable[[], None]:
        """Count a piece of work as in flight; answer its `finish`, which counts once however often it is called."""
        with self._lock:  # by itself, at a third of what its condition costs
            self._in_flight += 1
        return _Work(self)

    def work_began(self, amount: int) -> None:
        """Count pieces of work as in flight that somebody else tells apart, until `work_ended` counts them off."""
        with self._lock:
            self._in_flight += amount

    def work_ended(self, amount: int) -> None:
        """Count off pieces of work that `work_began` counted."""
        with self._lock:
            self._in_flight -= amount
            if amount and not self._in_flight:
                self._condition.notify_all()

    def _finish(self, work: _Work) -> None:
        with self._lock:
            if not work.is_finished:
                work.is_finished = True
                self._in_flight -= 1
                if not self._in_flight:
                    self._condition.notify_all()

    def readiness(self) -> Readiness:
        """Answer whether the process takes work, its phase, and how much work is in flight."""
        with self._condition:
            return {"ready": self._phase == "running", "phase": self._phase, "in_flight": self._in_flight}

    def shutdown(self, reason: str) -> None:
        """End the process's work and return when all is closed; later calls join the first.

        Runs in the caller's thread and starts none, as an interpreter that is exiting allows no new ones. A signal
        handler calls it from a thread of its own, never directly: the interrupted thread may hold a lock it needs.
        """
        with self._condition:
            is_first = self._phase == "running"
            if is_first:
                self._phase, self._runner = "accept", threading.get_ident()
        if is_first:
            self._run(reason)
        elif self._runner != threading.get_ident():
            self._closed.wait()

    def _run(self, reason: str) -> None:
        budget = self._budget
        deadline_at = None if budget is None else real_monotonic() + budget.total_seconds()
        shutdown = Shutdown(reason, deadline_at)
        try:
            self._run_hooks("accept", shutdown, first=0)
            self._wait_in_flight(deadline_at)
            self._enter("close")
            self._run_hooks("close", shutdown, first=-1)
        finally:
            self._enter("closed")
            self._closed.set()

    def _run_hooks(self, phase: HookPhase, shutdown: Shutdown, first: Literal[0, -1]) -> None:
        # Taken one at a time: a hook may remove another that has not run yet.
        while (registered := self._take(phase, first)) is not None:
            try:
                registered.hook(shutdown)
            except Exception as error:
                fields = {"name": registered.name, "phase": phase, "reason": shutdown.reason}
                _logger.error("lifecycle.hook.failed", extra={"fields": fields}, exc_info=error)

    def _wait_in_flight(self, deadline_at: float | None) -> None:
        self._enter("in-flight")
        with self._condition:
            self._condition.wait_for(lambda: self._in_flight == 0, _wait_seconds(deadline_at))

    def _enter(self, phase: Phase) -> None:
        with self._condition:
            self._phase = phase

    def _take(self, phase: HookPhase, first: Literal[0, -1]) -> _Registered | None:
        with self._condition:
            return self._hooks[phase].pop(first) if self._hooks[phase] else None

    def _remove(self, phase: HookPhase, registered: _Registered) -> None:
        with self._condition:
            if registered in self._hooks[phase]:
                self._hooks[phase].remove(registered)


def wait_all_by(pending: Iterable[Pending], deadline_at: float | None) -> bool:
    """Wait until everything has settled (`True`) or the deadline came first (`False`); `None` is no deadline.

    `deadline_at` is a reading of the real monotonic clock. Takes events, threads, futures, and whatever has an
    event's `wait`. Work that failed or was cancelled is finished work, and nothing is raised again. A deadline already
    past still counts what has settled. Starts no thread, so it keeps no process alive.
    """
    return all(_is_settled_by(item, deadline_at) for item in list(pending))


def _is_settled_by(item: Pending, deadline_at: float | None) -> bool:
    timeout = _wait_seconds(deadline_at)
    if isinstance(item, threading.Thread):
        item.join(timeout)
        return not item.is_alive()
    try:
        if isinstance(item, concurrent.futures.Future):
            item.exception(timeout)
            return True
        return item.wait(timeout)
    except TimeoutError:
        return False
    except Exception:  # noqa: BLE001 - work that failed is finished work; its owner has the error
        return True


def _wait_seconds(deadline_at: float | None) -> float | None:
    left = real_seconds_until(deadline_at)
    return None if left is None else min(left, threading.TIMEOUT_MAX)


_guard = threading.Lock()
_default: Lifecycle | None = None


def lifecycle() -> Lifecycle:
    """Answer the process's own lifecycle; after it has closed, a new one with the same budget.

    Leaving the interpreter shuts it down with the reason `exit`. A forked child has one of its own.
    """
    global _default
    with _guard:
        if _default is None:
            _default = Lifecycle()
        elif _default.readiness()["phase"] == "closed":
            _default = Lifecycle(_default.budget)
        return _default


@spelled
def configure_lifecycle(deadline: timedelta | str | None = "25s") -> None:
    """Set the drain budget of the process; keep the orchestrator's grace period above it."""
    lifecycle().configure(deadline)


def _shut_down_at_exit() -> None:
    if _default is not None:
        _default.shutdown("exit")


def _forget_after_fork() -> None:
    # The parent's hooks would close the parent's sockets, and its lock may be held by a thread that is not here.
    global _default, _guard
    _default, _guard = None, threading.Lock()


atexit.register(_shut_down_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
