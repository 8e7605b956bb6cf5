"""The executor of one pass: made when first needed where the declaration makes it, and then ended with the pass."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

from rowsweep.sweeps.executors.declared import check_start
from rowsweep.sweeps.executors.pools import has_lost, kill
from rowsweep.sweeps.refusals import refused

Answer = TypeVar("Answer")
Raised = TypeVar("Raised", bound=Exception)

_WORKERS_UNKNOWN: Final = 4
_MOST_WORKERS: Final = 64


class Lane:
    """Submit calls to a declared executor, and cancel those that nobody waits for any more.

    One that the declaration's function makes is this lane's own: `renew` makes another, `close` ends it, with the
    calls that are still running in its processes. One that was given is the caller's: it is never shut down.
    """

    def __init__(self, declared: Executor | Callable[[], Executor]) -> None:
        self._declared = declared
        self._executor: Executor | None = None
        self._open: set[Future[Any]] = set()
        self.started = 0

    @property
    def executor(self) -> Executor:
        """The executor, made now if it has to be."""
        if self._executor is None:
            made = self._declared if isinstance(self._declared, Executor) else self._declared()
            if not isinstance(made, Executor):
                raise refused("executor", "a function that answers a concurrent.futures.Executor", made, "return one")
            check_start(made)
            self._executor = made
            self.started += 1
        return self._executor

    @property
    def is_made(self) -> bool:
        """Whether there is an executor now."""
        return self._executor is not None

    @property
    def is_pool(self) -> bool:
        """Whether it is a pool of processes of this machine."""
        return isinstance(self.executor, ProcessPoolExecutor)

    @property
    def workers(self) -> int:
        """How many calls it does at once: a pool's size, or the threads that a Dask cluster has now."""
        executor: Any = self.executor
        client, size = getattr(executor, "_client", None), getattr(executor, "_max_workers", None)
        if client is not None and hasattr(client, "nthreads"):
            size = sum(client.nthreads().values())
        return min(max(size, 1), _MOST_WORKERS) if isinstance(size, int) else _WORKERS_UNKNOWN

    def depth(self, ahead: int | None) -> int:
        """Answer how many calls to have out at once: as many as asked for, else twice its workers.

        A pool of processes takes one more than that; what it has not taken would have to be cancelled one by one, over
        which a pool that breaks meanwhile stumbles before Python 3.13.
        """
        most = 2 * self.workers
        wanted = most if ahead is None else ahead
        return min(wanted, most + 1) if self.is_pool else wanted

    def has_lost(self) -> bool:
        """Say whether the executor may owe an answer that will never come."""
        return self._executor is not None and has_lost(self._executor)

    def submit(self, function: Callable[..., Answer], *given: Any) -> Future[Answer]:
        """Submit a call, to be cancelled with the lane unless it is done by then."""
        executor = self.executor
        try:
            future = executor.submit(function, *given)
            self._open.add(future)
            future.add_done_callback(self._open.discard)
        except Exception as error:
            blameless(error)
            raise
        return future

    def cancel(self) -> None:
        """Cancel what has not begun."""
        for future in list(self._open):
            future.cancel()

    def renew(self, error: BrokenExecutor) -> bool:
        """Leave a broken executor behind; answer whether another can be made, else say so on the error."""
        if isinstance(self._declared, Executor):
            blameless(error).add_note("executor= a function that makes the pool lets the next attempt have a new one")
            return False
        self.close()
        return True

    def close(self) -> None:
        """End an executor of our own, in the middle of a call if it must be; of another, cancel what is left."""
        executor, self._executor = self._executor, None
        if executor is None or executor is self._declared:
            self.cancel()
            return
        if self._open:
            kill(executor)
        self._open.clear()
        try:
            executor.shutdown(wait=isinstance(executor, ProcessPoolExecutor), cancel_futures=True)
        except TypeError:  # Dask's takes no cancel_futures: it cancels where it does not wait
            executor.shutdown(wait=False)


def blameless(error: Raised) -> Raised:
    """Mark an error of the executor itself: another attempt may find it mended, and no row is to blame for it."""
    with suppress(AttributeError):  # a class with slots takes no mark
        error.retry = "retry-after"  # type: ignore[attr-defined]  # any error may carry it
    return error
