"""One worker of jobs that may run one at a time, in all or for each key, and write what they do under their fence."""

from __future__ import annotations

import argparse
import os
import threading

import rowsweep as rs

RETRY = rs.Retry(attempts=1_000, base="50ms", max_delay="50ms")


def visit(ctx: rs.Ctx, label: str, mark: str) -> None:
    """Note where this run is; a run that no longer holds its claim notes nothing."""
    with ctx.transaction() as tx:
        tx.execute(
            "insert into visits (label, run, mark, pid) values (%s, %s, %s, %s)",
            [label, f"{ctx.job_id}/{ctx.attempt}/{os.getpid()}", mark, os.getpid()],
        )


@rs.job("one", tenant="none", input=int, concurrency=1, retry=RETRY)
def one(ctx: rs.Ctx, number: int) -> None:
    """Visit for a moment, alone of its name."""
    visit(ctx, "one", "in")
    ctx.signal.wait(0.03)
    visit(ctx, "one", "still")
    ctx.signal.wait(0.03)
    visit(ctx, "one", "out")


@rs.job("by-key", tenant="none", input=str, concurrency=(3, rs.Keyed(lambda key: key)), retry=RETRY)
def by_key(ctx: rs.Ctx, key: str) -> None:
    """Visit for a moment, alone of its key."""
    visit(ctx, key, "in")
    ctx.signal.wait(0.05)
    visit(ctx, key, "out")


def main() -> None:
    """Work until the process is killed."""
    from rowsweep.telemetry.console import configure_logging

    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    given = parser.parse_args()
    configure_logging(json=True, level="debug")
    app = rs.connect(work=False, actor=given.name)
    app.worker(id=given.name, concurrency=4, visibility="1s", poll="200ms", poll_floor="50ms").start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
