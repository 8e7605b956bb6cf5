"""How much faster two workers sweep a table in two shards than in one, and how many more pages that reads.

The rows are the three million flights of `flights-3m.parquet` where that is at hand (`$ROWSWEEP_BENCH_FLIGHTS`, else
`../shared/data` beside the repository); else as many are generated that look like them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import psycopg

import rowsweep as rs
from benchmarks.measure import Figure, Medians, interleave
from benchmarks.tables import ROUNDS, app, dsn
from rowsweep.sweeps.handle import Sweep

_ROWS: Final = int(os.environ.get("ROWSWEEP_BENCH_ROWS", "3000000"))
_FILE: Final = os.environ.get("ROWSWEEP_BENCH_FLIGHTS", "../shared/data/flights-3m.parquet")
_TABLE: Final = (
    "create table {} (id bigint generated always as identity primary key, date timestamp, delay integer,"
    " distance integer, origin text, destination text, week date) with (fillfactor = 85)"
)
_COLUMNS: Final = "date, delay, distance, origin, destination"
_GENERATED: Final = f"""
insert into flights ({_COLUMNS})
select timestamp '2006-01-01' + n * interval '5 seconds', n * 7919 % 300 - 30, n * 104729 % 2700 + 50,
       'AP' || n % 300, 'AP' || n * 7 % 300
  from generate_series(1::bigint, {_ROWS}) n"""


@cache
def declared() -> dict[int, Sweep[Any]]:
    """Declare the same sweep as one job and as two, once."""
    return {
        shards: rs.backfill(
            f"flight-week-{shards}",
            rows=rs.Rows("ours"),
            set={"week": "date_trunc('week', date)::date"},
            batch_rows=5_000,
            adapt=False,
            shards=shards,
        )
        for shards in (1, 2)
    }


def speed() -> Figure:
    """Measure both on the same two worker processes, from the launch to the end, by the database's clock."""
    sweeps = declared()
    with _workers():
        medians = interleave(lambda: _swept(sweeps[2]), lambda: _swept(sweeps[1]), ROUNDS)
    return Figure(name="scale.shards", unit="rows/s", ours=medians.ours, reference=medians.reference, bar=1.25)


def pages() -> Figure:
    """Count the pages of the table and its key that each touches, the search for bounds and middles included."""
    sweeps = declared()
    medians = Medians(*(_touched(sweeps[shards]) for shards in (2, 1)))
    return Figure(
        name="scale.shards.pages", unit="pages", ours=medians.ours, reference=medians.reference, bar=1.1, better="lower"
    )


@cache
def _flights() -> int:
    """Load the flights once, and answer how many they are."""
    app()
    with psycopg.connect(dsn(), autocommit=True) as connection:
        connection.execute(_TABLE.format("flights"))
        if Path(_FILE).exists() and "ROWSWEEP_BENCH_ROWS" not in os.environ:
            _load(connection)
        else:
            connection.execute(_GENERATED)
        connection.execute("vacuum (analyze) flights")
        row = connection.execute("select count(*) from flights").fetchone()
    assert row is not None
    return int(row[0])


def _load(connection: psycopg.Connection[Any]) -> None:
    import polars as pl

    frame = pl.read_parquet(_FILE).select(_COLUMNS.split(", "))
    with connection.cursor() as cursor, cursor.copy(f"copy flights ({_COLUMNS}) from stdin (format csv)") as copy:
        for part in frame.iter_slices(200_000):
            copy.write(part.write_csv(include_header=False).encode())


def _make_ours() -> int:
    """Make the swept table anew, settled: visible to all, analyzed, checkpointed, and left alone by vacuums."""
    rows = _flights()
    with psycopg.connect(dsn(), autocommit=True) as connection:
        connection.execute("drop table if exists ours")
        connection.execute(_TABLE.format("ours"))
        connection.execute("alter table ours set (autovacuum_enabled = off)")
        connection.execute(f"insert into ours ({_COLUMNS}) select {_COLUMNS} from flights order by id")
        connection.execute("vacuum (analyze) ours")
        connection.execute("checkpoint")
    return rows


@contextmanager
def _workers() -> Iterator[None]:
    """Have two worker processes for the block; they have ended, and told their statistics, behind it."""
    app()
    command = [sys.executable, "-m", "benchmarks.workers.shard", dsn()]
    processes = [subprocess.Popen([*command, f"w{at}"]) for at in (1, 2)]
    try:
        _until(lambda: _one("select count(*) from x_job_workers where expires_at > now()") == 2, "both workers")
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def _swept(sweep: Sweep[Any]) -> float:
    """Sweep the table made anew, and answer rows a second."""
    rows = _make_ours()
    run = sweep.launch(force=True)
    _until(lambda: run.snapshot().status != "running", "the end", seconds=900)
    snapshot = run.snapshot()
    assert (snapshot.status, snapshot.rows) == ("done", rows), snapshot
    assert snapshot.finished_at is not None
    wrong = _one("select count(*) from ours where week is distinct from date_trunc('week', date)::date")
    assert wrong == 0, wrong
    return rows / (snapshot.finished_at - snapshot.started_at).total_seconds()


def _touched(sweep: Sweep[Any]) -> float:
    with _workers():
        _swept_once(sweep)
    query = (
        "select heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit"
        " from pg_statio_user_tables where relname = 'ours'"
    )
    return float(_one(query))


def _swept_once(sweep: Sweep[Any]) -> None:
    rows = _make_ours()
    _one("select pg_stat_reset()::text")
    run = sweep.launch(force=True)
    _until(lambda: run.snapshot().status != "running", "the end", seconds=900)
    assert run.snapshot().rows == rows, run.snapshot()


def _one(query: str) -> Any:
    with psycopg.connect(dsn(), autocommit=True) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def _until(holds: Callable[[], bool], what: str, *, seconds: float = 60.0) -> None:
    give_up_at = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up_at, f"never came: {what}"
        time.sleep(0.05)


FIGURES: dict[str, Callable[[], Figure]] = {"scale.shards": speed, "scale.shards.pages": pages}
