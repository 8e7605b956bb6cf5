"""One event loop on one thread, for the bodies that are coroutines."""

from __future__ import annotations

import asyncio
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
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, awaitable: Awaitable[Any], signal: RunSignal) -> Any:
        """Await it on the loop, in the caller's context, and answer what it answers or raise what it raises.

        An aborted run has a moment to end by itself, then its task is cancelled; one that does not end within 1 s
        even then is left behind, and a loop that it blocks with it. Raises Interrupted where the abort ended it.
        """
        awaited = _Awaited()
        with self._lock:
            loop = self._running()
            future = asyncio.run_coroutine_threadsafe(awaited.contain(awaitable), loop)
        remove = signal.on_abort(awaited.stirred.set)
        try:
            awaited.stirred.wait()
            if not awaited.ended.wait(None if not signal.aborted else PATIENCE_SECONDS):
                future.cancel()
                if not awaited.ended.wait(GRACE_SECONDS):
                    self._leave_behind_if_blocked(loop)
        finally:
            remove()
        return awaited.answer(signal)

    def close(self) -> None:
        """Stop the loop; what still runs on it is not waited for."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _leave_behind_if_blocked(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let later bodies have a loop of their own where this one is held up by a call that blocks.

        It ends with the last body on it.
        """
        answers = threading.Event()
        loop.call_soon_threadsafe(answers.set)
        if not answers.wait(_ANSWERS_WITHIN_SECONDS):
            with self._lock:
                if self._loop is loop:
                    self._loop = None
                    asyncio.run_coroutine_threadsafe(_stop_behind_the_last(), loop)

    def _running(self) -> asyncio.AbstractEventLoop:
        """Answer the loop, started where there is none; asked under the lock, so that what is begun on it is on it."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=_serve, args=(self._loop,), name="rowsweep-loop", daemon=True).start()
        return self._loop


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


async def _stop_behind_the_last() -> None:
    """Stop the running loop once nothing else is left on it."""
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    while others := asyncio.all_tasks() - {me}:
        await asyncio.wait(others)
    loop.stop()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.close()
