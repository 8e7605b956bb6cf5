"""One worker of jobs whose hook notes, in a transaction of its own, that it was told of their end."""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time

import psycopg

import rowsweep as rs

_local = threading.local()


def note(settled: rs.Settled[int, None]) -> None:
    """Note the ending, and take a moment about it, so that a kill may come in between."""
    if not hasattr(_local, "connection"):
        _local.connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    _local.connection.execute(
        "insert into told (job_id, outcome, pid) values (%s, %s, %s)", [settled.job_id, settled.outcome, os.getpid()]
    )
    time.sleep(0.01)


@rs.job("act", tenant="none", input=int, retry=rs.Retry(attempts=2, base="20ms"), on_settled=note)
def act(ctx: rs.Ctx, number: int) -> None:
    """End well, but for each tenth, which fails for good."""
    time.sleep(0.01)
    if number % 10 == 0:
        raise ValueError("no")


def main() -> None:
    """Work until the process is killed, or told to stop: its drain waits for the hooks."""
    from rowsweep.telemetry.console import configure_logging

    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    given = parser.parse_args()
    configure_logging(json=True, level="info")
    app = rs.connect(work=False, actor=given.name)
    worker = app.worker(id=given.name, concurrency=4, visibility="1s", poll="200ms", poll_floor="50ms")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    worker.start()
    signal.sigwait({signal.SIGTERM})
    worker.stop()


if __name__ == "__main__":
    main()
