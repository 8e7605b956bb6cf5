"""Memoised steps with absurd-sdk: `python -m benchmarks.peers.steps.absurd DSN STEPS` prints what they took as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def main(dsn: str, steps: int) -> None:
    """Run a task of so many steps, which fails at its end, and then its retry, which only replays them."""
    from absurd_sdk import Absurd  # type: ignore[import-not-found]  # a peer has an interpreter of its own

    control = Path(sys.executable).with_name("absurdctl")
    subprocess.run([str(control), "init", "--database", dsn], check=True, capture_output=True)
    app = Absurd(dsn)
    app.create_queue("default")
    took: list[float] = []

    @app.register_task(name="steps")  # type: ignore[untyped-decorator]
    def run(_: Any, ctx: Any) -> None:
        began = time.perf_counter()
        for number in range(steps):
            ctx.step(f"step {number}", lambda: 1)
        took.append(time.perf_counter() - began)
        if len(took) == 1:
            raise ConnectionError("again")

    app.spawn("steps", {})
    app.work_batch()
    began = time.perf_counter()
    app.work_batch()
    replayed = time.perf_counter() - began
    assert len(took) == 2, took
    print(json.dumps({"run_seconds": took[0], "replay_seconds": replayed}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
