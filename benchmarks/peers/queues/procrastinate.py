"""A queue of procrastinate: `python -m benchmarks.peers.queues.procrastinate DSN VERB AMOUNT`."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, ClassVar

from benchmarks.peers.queues.side import Tally, main

_AT_ONCE = 100


class Procrastinate:
    """Asynchronous tasks on psycopg's pool, many at once, jobs deferred in batches."""

    finished: ClassVar[str] = "select count(*) from procrastinate_jobs where status = 'succeeded'"

    def __init__(self, dsn: str, tally: Tally) -> None:
        import procrastinate  # type: ignore[import-not-found]  # a peer has an interpreter of its own

        logging.disable(logging.WARNING)
        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn, max_size=20))

        @self._app.task(name="noop")  # type: ignore[untyped-decorator]
        async def noop(value: int) -> None:
            tally.ran()

        self._noop: Any = noop

    async def install(self) -> None:
        """Apply its schema."""
        await self.open()
        await self._app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        """Open its pool."""
        await self._app.open_async()

    async def enqueue(self, amount: int) -> None:
        """Defer the jobs in one batch."""
        if amount == 1:
            await self._noop.defer_async(value=1)
        else:
            await self._noop.batch_defer_async(*({"value": number} for number in range(amount)))

    async def start(self) -> None:
        """Run a worker that keeps finished jobs, as everyone here does."""
        self._work = asyncio.create_task(
            self._app.run_worker_async(concurrency=_AT_ONCE, install_signal_handlers=False, delete_jobs="never")
        )


if __name__ == "__main__":
    main(Procrastinate)
