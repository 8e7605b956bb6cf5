"""The server and the tables that the benchmarks run on."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path

import psycopg

import rowsweep as rs
from rowsweep.app.app import App

ROWS = int(os.environ.get("ROWSWEEP_BENCH_ROWS", "2000000"))
ROUNDS = int(os.environ.get("ROWSWEEP_BENCH_ROUNDS", "3"))
_FILL = """
insert into {name} (created_at, customer, price, qty)
select timestamptz '2024-01-01' + n * interval '17 seconds', 'customer-' || n % 9973,
       (n * 7919 % 25000 + 99) / 100.0, n % 7 + 1
  from generate_series(1::bigint, {rows}) n"""
_COLUMNS = """(
    id bigint generated always as identity primary key, created_at timestamptz not null, customer text not null,
    price numeric(10, 2) not null, qty integer not null, total numeric, band text, writes integer not null default 0
) with (fillfactor = 70)"""


@cache
def app() -> App:
    """Connect to a server of the benchmarks' own, durable as a user's would be."""
    folder = Path(tempfile.mkdtemp(prefix="rowsweep-bench-"))
    connected = rs.connect(folder=folder, work=False)

    def clean() -> None:
        connected.close()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(clean)
    return connected


def dsn() -> str:
    """Answer the server's DSN."""
    embedded = app().embedded
    assert embedded is not None
    return embedded.dsn


def make_orders(name: str, rows: int = ROWS) -> None:
    """Make the demo's table anew, settled: visible to all, analyzed, checkpointed."""
    with psycopg.connect(dsn(), autocommit=True) as connection:
        connection.execute(f"drop table if exists {name}")
        connection.execute(f"create table {name} {_COLUMNS}")
        connection.execute(_FILL.format(name=name, rows=rows))
        connection.execute(f"vacuum (analyze) {name}")
        connection.execute("checkpoint")


def make_events(name: str, rows: int = ROWS) -> None:
    """Make a table of events anew, the older half of them past their 90 days, settled like the demo's."""
    with psycopg.connect(dsn(), autocommit=True) as connection:
        connection.execute(f"drop table if exists {name}")
        connection.execute(
            f"create table {name} (id bigint generated always as identity primary key, "
            "created_at timestamptz not null, kind text not null, payload text not null)"
        )
        connection.execute(
            f"insert into {name} (created_at, kind, payload) "
            f"select now() - interval '90 days' + (n - {rows // 2}) * interval '1 second' "
            f"+ case when n > {rows // 2} then interval '1 day' else interval '-1 day' end, 'kind-' || n % 17, "
            f"repeat('x', 60) from generate_series(1, {rows}) n"
        )
        connection.execute(f"create index on {name} (created_at)")
        connection.execute(f"vacuum (analyze) {name}")
        connection.execute("checkpoint")


def worked() -> float:
    """Work the one job there is, a run's, by one tick of a worker; answer how many seconds that took."""
    worker = app().worker(drain_on_shutdown=False)
    gc.collect()
    began = time.perf_counter()
    worker.tick()
    seconds = time.perf_counter() - began
    worker.stop()
    return seconds
