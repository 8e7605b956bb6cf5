"""One worker of the sweeps that the shards' figures are about, until it is told to stop: `… DSN NAME`."""

from __future__ import annotations

import signal
import sys
import threading

import rowsweep as rs
from benchmarks.scale_shards import declared


def main(dsn: str, name: str) -> None:
    """Work one run at a time."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    app = rs.connect(dsn, work=False, health=None)
    declared()
    worker = app.worker(
        id=name, concurrency=1, poll="50ms", poll_floor="20ms", poll_with_wake="1s", announce_every="1s"
    )
    worker.start()
    stopped.wait()
    worker.stop()
    app.close()


if __name__ == "__main__":
    main(*sys.argv[1:3])
