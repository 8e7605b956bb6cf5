"""Three sweeps over real flights through the real command line, each killed once in the middle and checked against SQL.

    python -m benchmarks.flights PATH/flights-3m.parquet

The file has the columns date, delay, distance, origin and destination. Everything happens in a folder of its own that
is removed afterwards.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl
import psycopg

from rowsweep.embedded import start

_APP = """
import polars as pl
import rowsweep as rs

week = rs.backfill("flight-week", rows=rs.Rows("flights"), set={"week": "date_trunc('week', date)::date"})

LABELS = ["early", "on time", "late", "very late"]

@rs.backfill("delay-bands", rows=rs.Rows("flights", columns=["id", "delay"]), batch_rows=5_000)
def delay_bands(batch):
    return batch.frame.select("id", band=pl.col("delay").cut([-1, 15, 60], labels=LABELS))

@rs.backfill("long-haul", rows=rs.Rows("flights", where="distance >= 2000"))
def long_haul(batch):
    batch.execute(
        "insert into long_haul (flight, route, miles) select id, origin || '-' || destination, distance from flights"
        " where id = any(%s)", [[row["id"] for row in batch.rows]])
"""
_CHECKS = {
    "flight-week": "select count(*) filter (where week is distinct from date_trunc('week', date)::date) from flights",
    "delay-bands": """select count(*) filter (where band is distinct from case when delay <= -1 then 'early'
        when delay <= 15 then 'on time' when delay <= 60 then 'late' when delay > 60 then 'very late' end)
        from flights""",
    "long-haul": """select count(*) from (select id, origin || '-' || destination as route, distance from flights
        where distance >= 2000) f full join long_haul l on l.flight = f.id
        where l.route is distinct from f.route or l.miles is distinct from f.distance""",
}


def main(path: str) -> int:
    """Load the flights, run the three sweeps, and answer 1 where a row is wrong."""
    with tempfile.TemporaryDirectory(prefix="rowsweep-flights-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "backfills").mkdir()
        (folder / "backfills" / "flights.py").write_text(_APP)
        server = start(folder / ".rowsweep")
        try:
            wrong = 0
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                _load(connection, path)
                _cli(folder, server.dsn, "schema", "install").wait()
                for sweep, check in _CHECKS.items():
                    wrong += _swept(folder, server.dsn, connection, sweep, check)
            return 1 if wrong else 0
        finally:
            server.leave()


def _load(connection: psycopg.Connection[Any], path: str) -> None:
    connection.execute(
        "create table flights (id bigint generated always as identity primary key, date timestamp, delay integer,"
        " distance integer, origin text, destination text, week date, band text)"
    )
    connection.execute("create table long_haul (flight bigint, route text, miles integer)")
    frame = pl.read_parquet(path).select("date", "delay", "distance", "origin", "destination")
    began = time.perf_counter()
    with connection.cursor() as cursor:
        statement = "copy flights (date, delay, distance, origin, destination) from stdin (format csv)"
        with cursor.copy(statement) as copy:
            for part in frame.iter_slices(200_000):
                copy.write(part.write_csv(include_header=False).encode())
    connection.execute("vacuum (analyze) flights")
    print(f"loaded {frame.height:,} flights in {time.perf_counter() - began:.1f} s", flush=True)


def _swept(folder: Path, dsn: str, connection: psycopg.Connection[Any], sweep: str, check: str) -> int:
    first = _cli(folder, dsn, "run", sweep, "--visibility", "3s")
    condition = "distance >= 2000" if sweep == "long-haul" else "true"
    matching = connection.execute(f"select count(*) from flights where {condition}").fetchone()
    assert matching is not None
    while True:
        row = connection.execute("select rows from x_backfills where name = %s", [sweep]).fetchone()
        if row is not None and row[0] > matching[0] * 0.4:
            break
        assert first.poll() is None, first.communicate()
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    resumed = _cli(folder, dsn, "run", sweep, "--visibility", "3s")
    output, errors = resumed.communicate()
    assert resumed.returncode == 0, (output, errors)
    listed = _cli(folder, dsn, "ledger", "--name", sweep, "--json")
    ledger = json.loads(listed.communicate()[0])
    entry = ledger[0] if isinstance(ledger, list) else next(iter(ledger.values()))[0]
    found = connection.execute(check).fetchone()
    assert found is not None
    figures = {
        "sweep": sweep,
        "killed_at_rows": row[0],
        "of": matching[0],
        "rows": entry["rows"],
        "batches": entry["batches"],
        "active_seconds": round(entry["active_seconds"], 1),
        "rows_per_second": round(entry["rows"] / entry["active_seconds"]),
        "wrong": found[0],
    }
    print(json.dumps(figures), flush=True)
    return int(found[0])


def _cli(folder: Path, dsn: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rowsweep.cli", *arguments, "--dsn", dsn]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
