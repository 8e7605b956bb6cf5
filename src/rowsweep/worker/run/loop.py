"""One event loop on one thread, for the bodies that are coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Final

from rowsweep.errors import Interrupted

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from rowsweep.signals import RunSignal

PATIENCE_SECONDS: Final = 0.25
GRACE_SECONDS: Final = 1.0
_ANSWERS_WITHIN_SECONDS: Final = 0.1


class LoopThread:
    """Run awaitables on a loop that starts with the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._served: _Served | None = None

    def run(self, awaitable: Awaitable[Any], signal: RunSignal) -> Any:
        """Await it on the loop, in the caller's context, and answer what it answers or raise what it raises.

        An aborted run has a moment to end by itself, then its task is cancelled; one that does not end within 1 s
        even then is left behind, and a loop that it blocks with it. Raises Interrupted where the abort ended it.
        """
        awaited = _Awaited()
        with self._lock:
            served = self._running()
            future = asyncio.run_coroutine_threadsafe(awaited.contain(awaitable), served.loop)
        remove = signal.on_abort(awaited.stirred.set)
        try:
            awaited.stirred.wait()
            if not awaited.ended.wait(None if not signal.aborted else PATIENCE_SECONDS):
                future.cancel()
                if not awaited.ended.wait(GRACE_SECONDS):
                    self._leave_behind_if_blocked(served)
        finally:
            remove()
        return awaited.answer(signal)

    def close(self) -> None:
        """Stop the loop; what still runs on it is not waited for."""
        with self._lock:
            served, self._served = self._served, None
        if served is not None:
            served.end()

    def _leave_behind_if_blocked(self, served: _Served) -> None:
        """Let later bodies have a loop of their own where this one is held up by a call that blocks.

        It ends with the last body on it.
        """
        answers = threading.Event()
        served.loop.call_soon_threadsafe(answers.set)
        if not answers.wait(_ANSWERS_WITHIN_SECONDS):
            with self._lock:
                if self._served is served:
                    self._served = None
                    asyncio.run_coroutine_threadsafe(served.end_behind_the_last(), served.loop)

    def _running(self) -> _Served:
        """Answer the loop, started where there is none; asked under the lock, so that what is begun on it is on it."""
        if self._served is None:
            self._served = _Served()
        return self._served


class _Served:
    """A loop on a thread of its own: only `end` ends it.

    A body may call `loop.stop()`, and a SystemExit or KeyboardInterrupt of a task that it started goes through the
    loop: neither may take the other bodies along, nor those that come.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._is_over = False
        threading.Thread(target=self._serve, name="rowsweep-loop", daemon=True).start()

    def end(self) -> None:
        """Stop the loop, and cancel what is left on it."""
        self._is_over = True
        self.loop.call_soon_threadsafe(self.loop.stop)

    async def end_behind_the_last(self) -> None:
        """Stop the loop once nothing else is left on it."""
        me = asyncio.current_task()
        while others := asyncio.all_tasks() - {me}:
            await asyncio.wait(others)
        self.end()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._is_over:
            with contextlib.suppress(BaseException):
                self.loop.run_forever()
        pending = asyncio.all_tasks(self.loop)
        for task in pending:
            task.cancel()
        if pending:
            with contextlib.suppress(BaseException):
                self.loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self.loop.close()


class _Awaited:
    """What became of one awaitable; nothing it raises gets into the loop, which a SystemExit would end."""

    def __init__(self) -> None:
        self.stirred = threading.Event()
        self.ended = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    async def contain(self, awaitable: Awaitable[Any]) -> None:
        try:
            self._result = await awaitable
        except BaseException as error:  # noqa: BLE001 - raised again in the run's own thread
            self._error = error
        finally:
            self.ended.set()
            self.stirred.set()

    def answer(self, signal: RunSignal) -> Any:
        if not self.ended.is_set() or (isinstance(self._error, asyncio.CancelledError) and signal.aborted):
            raise Interrupted(signal.reason)
        if self._error is not None:
            raise self._error
        return self._result
