"""A queue of pgqueuer: `python -m benchmarks.peers.queues.pgqueuer DSN VERB AMOUNT`."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from benchmarks.peers.queues.side import Tally, main

_BATCH = 100


class PgQueuer:
    """Asynchronous entrypoints over asyncpg on uvloop's kind of connection, a hundred jobs a batch."""

    finished: ClassVar[str] = "select count(*) from pgqueuer_log where status = 'successful'"

    def __init__(self, dsn: str, tally: Tally) -> None:
        self._dsn = dsn
        self._tally = tally

    async def install(self) -> None:
        """Make its tables."""
        await self.open()
        await self._queries.install()

    async def open(self) -> None:
        """Connect by asyncpg."""
        import asyncpg  # type: ignore[import-not-found]  # a peer has an interpreter of its own
        from pgqueuer import PgQueuer as Queuer  # type: ignore[import-not-found]
        from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found]
        from pgqueuer.queries import Queries  # type: ignore[import-not-found]

        self._queries = Queries(AsyncpgDriver(await asyncpg.connect(self._dsn)))
        self._queuer: Any = Queuer(AsyncpgDriver(await asyncpg.connect(self._dsn)))

    async def enqueue(self, amount: int) -> None:
        """Insert the jobs in one statement."""
        await self._queries.enqueue(["noop"] * amount, [b"1"] * amount, [0] * amount)

    async def start(self) -> None:
        """Run its queue manager."""

        @self._queuer.entrypoint("noop")  # type: ignore[untyped-decorator]
        async def noop(job: Any) -> None:
            self._tally.ran()

        self._work = asyncio.create_task(self._queuer.run(batch_size=_BATCH))


if __name__ == "__main__":
    main(PgQueuer)
