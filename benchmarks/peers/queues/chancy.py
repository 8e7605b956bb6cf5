"""A queue of chancy: `python -m benchmarks.peers.queues.chancy DSN VERB AMOUNT`."""

from __future__ import annotations

import logging
import sys
from typing import Any, ClassVar

from benchmarks.peers.queues.side import Tally, main

_AT_ONCE = 1_000
_tally = Tally()


async def noop(*, value: int) -> None:
    """Count."""
    _tally.ran()


class Chancy:
    """Asynchronous jobs in the worker's own loop, polled for again as soon as one ends."""

    finished: ClassVar[str] = "select count(*) from chancy_jobs where state = 'succeeded'"

    def __init__(self, dsn: str, tally: Tally) -> None:
        from chancy import Chancy as App  # type: ignore[import-not-found]  # a peer has an interpreter of its own

        global _tally
        _tally = tally
        self._app = App(dsn, log=_silent())

    async def install(self) -> None:
        """Migrate, and declare the queue."""
        from chancy import Queue

        async with self._app:
            await self._app.migrate()
            await self._app.declare(
                Queue("default", concurrency=_AT_ONCE, executor=self._app.Executor.Async, eager_polling=True)
            )

    async def open(self) -> None:
        """Open its pool."""
        await self._app.__aenter__()

    async def enqueue(self, amount: int) -> None:
        """Push the jobs, a thousand in a transaction."""
        from chancy import Job

        jobs = [Job.from_func(noop, kwargs={"value": number}) for number in range(amount)]
        if amount == 1:
            await self._app.push(jobs[0])
        else:
            async for _ in self._app.push_many(jobs):
                pass

    async def start(self) -> None:
        """Start its worker."""
        from chancy import Worker

        self._worker: Any = Worker(self._app, register_signal_handlers=False)
        await self._worker.__aenter__()


def _silent() -> logging.Logger:
    logger = logging.getLogger("chancy-silent")
    logger.setLevel(logging.ERROR)
    return logger


if __name__ == "__main__":
    # A worker finds the function by its module's name, where it must be this very one.
    sys.modules["benchmarks.peers.queues.chancy"] = sys.modules[__name__]
    noop.__module__ = "benchmarks.peers.queues.chancy"
    main(Chancy)
