"""A queue of dbos: `python -m benchmarks.peers.queues.dbos DSN VERB AMOUNT`."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from benchmarks.peers.queues.side import Tally, main

_CONFIG = {"name": "queue", "log_level": "ERROR", "enable_otlp": False, "run_admin_server": False}
_QUEUE = "bench"
_AT_ONCE = 100


class Dbos:
    """Synchronous workflows on its threads, polled for ten times a second."""

    finished: ClassVar[str] = "select count(*) from dbos.workflow_status where status = 'SUCCESS'"

    def __init__(self, dsn: str, tally: Tally) -> None:
        from dbos import DBOS  # type: ignore[import-not-found]  # a peer has an interpreter of its own

        self._dsn = dsn
        self._dbos: Any = DBOS
        address = dsn.replace("postgresql://", "postgresql+psycopg://", 1)
        DBOS(config={**_CONFIG, "system_database_url": address, "application_version": "1"})

        @DBOS.workflow(name="noop")  # type: ignore[untyped-decorator]
        def noop(value: int) -> None:
            tally.ran()

        self._noop = noop

    async def install(self) -> None:
        """Launch once, which migrates."""
        await self.start()

    async def open(self) -> None:
        """Make a client, which enqueues without working."""
        from dbos import DBOSClient

        address = self._dsn.replace("postgresql://", "postgresql+psycopg://", 1)
        self._client: Any = await asyncio.to_thread(DBOSClient, system_database_url=address)

    async def enqueue(self, amount: int) -> None:
        """Enqueue one by one, which is all it has, on several threads."""
        options = {"workflow_name": "noop", "queue_name": _QUEUE, "app_version": "1"}
        if amount == 1:
            await self._client.enqueue_async(options, 1)
            return
        with ThreadPoolExecutor(4) as threads:
            await asyncio.to_thread(
                lambda: list(threads.map(lambda number: self._client.enqueue(options, number), range(amount)))
            )

    async def start(self) -> None:
        """Launch, which works the queue."""
        await asyncio.to_thread(self._launch)

    def _launch(self) -> None:
        self._dbos.launch()
        self._dbos.register_queue(_QUEUE, worker_concurrency=_AT_ONCE, polling_interval_sec=0.1)


if __name__ == "__main__":
    main(Dbos)
