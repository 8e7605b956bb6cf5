"""A queue of awa-pg: `python -m benchmarks.peers.queues.awa DSN VERB AMOUNT`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from benchmarks.peers.queues.side import Tally, main

_AT_ONCE = 256


@dataclass
class Noop:
    """Its jobs are typed by their input."""

    value: int


class Awa:
    """Asynchronous handlers on its Rust runtime, jobs streamed in by COPY."""

    # Its view of jobs takes seconds over some thousands; this is what a completion writes.
    finished: ClassVar[str] = "select coalesce(sum(completed_count), 0) from awa.receipt_completion_batches"

    def __init__(self, dsn: str, tally: Tally) -> None:
        self._dsn = dsn
        self._tally = tally

    async def install(self) -> None:
        """Migrate, and choose the storage that takes jobs by COPY."""
        await self.open()
        await self._client.migrate()
        await self._client.install_queue_storage()

    async def open(self) -> None:
        """Make its client."""
        import awa  # type: ignore[import-not-found]  # a peer has an interpreter of its own

        # Its driver takes no address without a host, and goes by the parameter that names the socket all the same.
        self._client: Any = awa.AsyncClient(self._dsn.replace("@/", "@localhost/", 1), max_connections=20)

        @self._client.task(Noop, queue="default")  # type: ignore[untyped-decorator]
        async def noop(job: Any) -> None:
            self._tally.ran()

    async def enqueue(self, amount: int) -> None:
        """Stream the jobs into its storage by COPY."""
        if amount == 1:
            await self._client.insert(Noop(1), queue="default")
        else:
            await self._client.enqueue_many_copy([Noop(number) for number in range(amount)], queue="default")

    async def start(self) -> None:
        """Start its workers."""
        await self._client.start([("default", _AT_ONCE)])


if __name__ == "__main__":
    main(Awa)
