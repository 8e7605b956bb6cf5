"""Rowsweep's own queue, measured as its peers are: `python -m benchmarks.peers.queues.rowsweep DSN VERB AMOUNT`."""

from __future__ import annotations

import gc
import os
from typing import Any, ClassVar

import rowsweep as rs
from benchmarks.peers.queues.side import Tally, main
from rowsweep.telemetry.instruments import use_instruments

AT_ONCE = 1_000
COLLECT_EVERY = 10_000
HELD = "held"


class Rowsweep:
    """Synchronous bodies on run threads, a claim for as many as may run at once."""

    finished: ClassVar[str] = "select count(*) from x_jobs where state = 'done'"

    def __init__(self, dsn: str, tally: Tally) -> None:
        self._dsn = dsn
        # No peer measures itself here, and OpenTelemetry is installed beside this one only for its tests.
        use_instruments(None, None)
        self._noop = rs.job("noop", lambda *_: tally.ran(), input=int, tenant="none")
        if os.environ.get("ROWSWEEP_BENCH_HELD"):
            rs.job(HELD, lambda *_: None, input=int, tenant="none", concurrency=rs.Keyed(lambda _: "busy"))

    async def install(self) -> None:
        """Make its tables."""
        await self.open()
        self._app.install()

    async def open(self) -> None:
        """Connect."""
        self._app: Any = rs.connect(self._dsn, work=False)

    async def enqueue(self, amount: int) -> None:
        """Put the jobs on the queue in one transaction."""
        if amount == 1:
            self._noop.enqueue(1)
        else:
            self._noop.enqueue_many(list(range(amount)))

    async def start(self) -> None:
        """Start a worker on threads of its own."""
        gc.collect()  # as the command `rowsweep worker` does
        gc.freeze()
        gc.set_threshold(COLLECT_EVERY, *gc.get_threshold()[1:])
        self._worker = self._app.worker(concurrency=AT_ONCE, drain_on_shutdown=False)
        self._worker.start()


if __name__ == "__main__":
    main(Rowsweep)
