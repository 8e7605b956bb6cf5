"""A process that forks after it connected: the child's worker and scheduler begin anew, the parent's go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import psycopg

FORKS = """
import os, sys
import rowsweep as rs

app = rs.connect(sys.argv[1])

@rs.job("here", tenant="none")
def here(ctx):
    return os.getpid()

def worked_here():
    job_id, inspection = here.enqueue().id, app.stores().inspection
    while inspection.get(job_id).state != "done":
        pass
    return inspection.get(job_id).result == os.getpid()

worker, scheduler = app.worker(), app.scheduler(tasks=[])
scheduler.start()
worker.start()
print(worked_here(), flush=True)
child = os.fork()
if child == 0:
    print(worker.state, scheduler.is_leading, scheduler.state, flush=True)
    app.close()
    worker.stop()
    print(worker.state, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(worker.state, scheduler.state, worked_here(), flush=True)
worker.stop()
scheduler.stop()
child = os.fork()
if child == 0:
    worker.start()
    print(worker.state, worked_here(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
app.close()
"""


def in_child(body: Callable[[], str], seconds: float = 20.0) -> str:
    """Run it in a child forked here, and answer what it says: nothing, where a lock of another thread holds it up."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            said = body()
        except BaseException as error:  # noqa: BLE001 - said, for nobody sees a child's traceback
            said = repr(error)
        finally:
            os.write(writes, said.encode())
            os._exit(0)
    give_up_at = time.monotonic() + seconds
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > give_up_at:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        return pipe.read()


def test_a_forked_child_begins_anew_and_its_parent_goes_on(
    queue_dsn: str, queue_connection: psycopg.Connection
) -> None:
    """N-002: nothing of the parent's is waited for, stopped or led by in the child, which can work by itself."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS, queue_dsn], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == [
        "True", "idle False idle", "stopped", "running running True", "running True",
    ]  # fmt: skip
