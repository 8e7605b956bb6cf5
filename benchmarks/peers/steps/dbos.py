"""Memoised steps with dbos: `python -m benchmarks.peers.steps.dbos DSN STEPS` prints what they took as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

_CONFIG = {"name": "steps", "log_level": "ERROR", "enable_otlp": False, "run_admin_server": False}


def work(dsn: str, steps: int, is_first: bool) -> None:
    """Run a workflow of so many steps, and leave while it is pending; or have it recovered, which only replays them."""
    from dbos import DBOS  # type: ignore[import-not-found]  # a peer has an interpreter of its own

    DBOS(config={**_CONFIG, "system_database_url": dsn})
    took: list[float] = []

    @DBOS.step()  # type: ignore[untyped-decorator]
    def step() -> int:
        return 1

    @DBOS.workflow()  # type: ignore[untyped-decorator]
    def run() -> None:
        began = time.perf_counter()
        for _ in range(steps):
            step()
        took.append(time.perf_counter() - began)
        if is_first:
            DBOS.sleep(3600)

    DBOS.launch()
    if is_first:
        DBOS.start_workflow(run)
    give_up_at = time.monotonic() + 300
    while not took and time.monotonic() < give_up_at:
        time.sleep(0.01)
    print(json.dumps(took[0]), flush=True)
    os._exit(0)


def main(dsn: str, steps: int) -> None:
    """Run it in one process and replay it in another, as after a crash."""
    address = dsn.replace("postgresql://", "postgresql+psycopg://", 1)
    seconds = []
    for kind in ("first", "again"):
        command = [sys.executable, "-m", "benchmarks.peers.steps.dbos", address, str(steps), kind]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=400)
        seconds.append(float(done.stdout.split()[-1]))
    print(json.dumps({"run_seconds": seconds[0], "replay_seconds": seconds[1]}))


if __name__ == "__main__":
    if len(sys.argv) > 3:
        work(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "first")
    else:
        main(sys.argv[1], int(sys.argv[2]))
