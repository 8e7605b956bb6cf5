"""Work one frame sweep in a process of its own, and print its peak memory in megabytes."""

from __future__ import annotations

import resource
import sys

import rowsweep as rs
from benchmarks.loops import bands


def main() -> None:
    """Sweep the table `ours` of the given server."""
    app = rs.connect(sys.argv[1], work=False)
    sweep = rs.backfill("frame-memory", lambda batch: bands(batch.frame), rows=rs.Rows("ours", columns=["id", "price"]))
    sweep.launch(force=True)
    app.worker(drain_on_shutdown=False).tick()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main()
