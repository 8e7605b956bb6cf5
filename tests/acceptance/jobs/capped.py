"""One worker of jobs that may run one at a time, in all or for each key, and write what they do under their fence."""

from __future__ import annotations

import argparse
import os
import threading
import time

import psycopg

import rowsweep as rs

RETRY = rs.Retry(attempts=1_000, base="50ms", max_delay="50ms")


VISIT = "insert into visits (label, run, mark, pid) values (%s, %s, %s, %s)"
_own = threading.local()


def visit(ctx: rs.Ctx, label: str, mark: str) -> None:
    """Note where this run is; a run that no longer holds its claim notes nothing."""
    with ctx.transaction() as tx:
        tx.execute(VISIT, [label, run_of(ctx), mark, os.getpid()])


def visit_by_itself(ctx: rs.Ctx, label: str, mark: str) -> None:
    """Note where this run is over a connection of the application's own: nothing but the fence is asked."""
    if not hasattr(_own, "connection"):
        _own.connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    with _own.connection.transaction():
        _own.connection.execute(VISIT, [label, run_of(ctx), mark, os.getpid()])
        ctx.guard(_own.connection)


def run_of(ctx: rs.Ctx) -> str:
    """Answer what tells this run from every other."""
    return f"{ctx.job_id}/{ctx.attempt}/{os.getpid()}"


@rs.job("one", tenant="none", input=int, concurrency=1, retry=RETRY)
def one(ctx: rs.Ctx, number: int) -> None:
    """Visit for a moment, alone of its name, and heed no signal: a run that wakes too late tries all that is left."""
    for mark in ("in", "still", "still", "still", "out"):
        visit_by_itself(ctx, "one", mark)
        time.sleep(0.02)


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
