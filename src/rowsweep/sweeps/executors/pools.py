"""What `concurrent.futures` leaves undone for a pool whose processes die: notice it, and end it in mid-call.

A pool that reads half an answer of a killed process waits for the other half without end, since it holds the pipe's
other side open itself, and with it waits whoever shuts it down, or leaves the interpreter.
"""

from __future__ import annotations

from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import suppress
from typing import Any, Final

_JOIN_SECONDS: Final = 5.0


def has_lost(executor: Executor) -> bool:
    """Say whether a pool lost a process, or the thread that minds them: what it still owes may never come."""
    pool: Any = executor
    if not isinstance(pool, ProcessPoolExecutor):
        return False
    minder = getattr(pool, "_executor_manager_thread", None)
    is_unminded = minder is not None and not minder.is_alive()
    return is_unminded or any(process.exitcode is not None for process in _processes(pool))


def kill(executor: Executor) -> None:
    """Kill a pool's processes: a call that runs cannot be cancelled, and the interpreter's exit would wait for it."""
    pool: Any = executor
    if not isinstance(pool, ProcessPoolExecutor):
        return
    processes = _processes(pool)
    for process in processes:
        with suppress(OSError, ValueError):  # it is gone already
            process.kill()
    for process in processes:
        with suppress(OSError, ValueError, AssertionError):  # it is gone, or a forked parent's
            process.join(_JOIN_SECONDS)
    for queue, end in (("_result_queue", "_writer"), ("_call_queue", "_reader")):
        with suppress(OSError, AttributeError):  # closed already, or a pool that is built otherwise
            getattr(getattr(pool, queue), end).close()


def _processes(pool: Any) -> list[Any]:
    return list((getattr(pool, "_processes", None) or {}).values())
