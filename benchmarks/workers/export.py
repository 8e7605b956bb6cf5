"""Export a table in a process of its own; prints the rows, the seconds and the peak memory in megabytes as JSON."""

from __future__ import annotations

import json
import resource
import sys
import time

import pyarrow.csv
import pyarrow.parquet  # noqa: F401

import rowsweep as rs


def main() -> None:
    """Export the table of the given server into the given folder."""
    dsn, table, folder = sys.argv[1:]
    app = rs.connect(dsn, work=False)
    export = rs.export_rows(f"export-{table}", rs.Rows(table), folder, overwrite=True)
    worker = app.worker(drain_on_shutdown=False)
    began = time.perf_counter()
    run = export.launch()
    worker.tick()
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"rows": run.wait()["rows"], "seconds": seconds, "peak_mb": peak}), flush=True)


if __name__ == "__main__":
    main()
