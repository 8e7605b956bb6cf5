"""Leaving the interpreter with a worker that is still running a job."""

from __future__ import annotations

import subprocess
import sys

from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from tests.worker.shop import Shop

SCRIPT = """
import sys, threading
from rowsweep.jobs.declare import job
from rowsweep.lifecycle import configure_lifecycle
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.worker.worker import Worker

configure_lifecycle("2s")
started = threading.Event()

@job("stubborn", tenant="none")
def stubborn(ctx):
    with ctx.transaction() as tx:
        started.set()
        tx.execute("select pg_sleep(60)")

worker = Worker(driver=PostgresDriver(sys.argv[1]), context=lambda: None, margin="1500ms")
worker.start()
assert started.wait(60)
print("leaving", flush=True)
"""


def test_leaving_the_interpreter_hands_back_what_still_runs(postgres: Shop, queue_dsn: str) -> None:
    """N-004, N-005, S-298, S-326, N-019: no thread can be started any more, and none keeps the process alive."""

    @job("stubborn", tenant="none")
    def stubborn(ctx: Ctx) -> None: ...

    job_id = postgres.enqueue(stubborn)
    left = subprocess.run(
        [sys.executable, "-c", SCRIPT, queue_dsn], capture_output=True, text=True, timeout=60, check=False
    )
    assert left.stdout == "leaving\n"
    assert left.returncode == 0
    assert "Traceback" not in left.stderr
    row = postgres.job(job_id)
    assert (row.state, row.attempt, row.claims) == ("ready", 0, 1)
