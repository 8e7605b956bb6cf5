"""A queue of absurd-sdk: `python -m benchmarks.peers.queues.absurd DSN VERB AMOUNT`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.queues.side import Tally, main

_AT_ONCE = 100
_POLL_SECONDS = 0.05


class Absurd:
    """Asynchronous tasks, claimed a hundred at once."""

    finished: ClassVar[str] = "select count(*) from absurd.t_default where state = 'completed'"

    def __init__(self, dsn: str, tally: Tally) -> None:
        self._dsn = dsn
        self._tally = tally

    async def install(self) -> None:
        """Make its schema by its own command, and the queue."""
        control = Path(sys.executable).with_name("absurdctl")
        command = [str(control), "init", "--database", self._dsn]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
        await self.open()
        await self._app.create_queue("default")

    async def open(self) -> None:
        """Make its client."""
        from absurd_sdk import AsyncAbsurd  # type: ignore[import-not-found]  # a peer has an interpreter of its own

        self._app: Any = AsyncAbsurd(self._dsn)

        @self._app.register_task(name="noop")  # type: ignore[untyped-decorator]
        async def noop(params: Any, ctx: Any) -> None:
            self._tally.ran()

    async def enqueue(self, amount: int) -> None:
        """Spawn one by one, which is all it has."""
        from absurd_sdk import AsyncAbsurd

        spawner = AsyncAbsurd(self._dsn)
        for number in range(amount):
            await spawner.spawn("noop", {"value": number}, queue="default")
        await spawner.close()

    async def start(self) -> None:
        """Start its worker."""
        self._work = asyncio.create_task(
            self._app.start_worker(concurrency=_AT_ONCE, batch_size=_AT_ONCE, poll_interval=_POLL_SECONDS)
        )


if __name__ == "__main__":
    main(Absurd)
