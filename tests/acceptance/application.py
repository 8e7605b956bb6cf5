"""The application under test: sweeps over `counted` that add one to each row; as a script, one worker of it."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import psycopg

import rowsweep as rs

ROWS = rs.Rows("counted", columns=["id", "n"])
BATCH_ROWS = 500
POISONED = 997
ADD_ONE = "update counted set n = n + 1 where id = any(%s)"

by_set = rs.backfill("by-set", rows=ROWS, set={"n": "n + 1"}, batch_rows=BATCH_ROWS, adapt=False)

# Not zero behind it: it uses its condition up, while adding one a second time would show.
unmarked = rs.backfill(
    "unmarked", rows=rs.Rows("counted", where="n = 0"), set={"n": "n + 1"}, batch_rows=BATCH_ROWS, adapt=False
)

sharded = rs.backfill("sharded", rows=ROWS, set={"n": "n + 1"}, shards=4, batch_rows=BATCH_ROWS, adapt=False)

paced = rs.backfill("paced", rows=ROWS, set={"n": "n + 1"}, rate="1000/s", batch_rows=BATCH_ROWS, adapt=False)


@rs.backfill("by-sql", rows=ROWS, batch_rows=BATCH_ROWS, adapt=False)
def by_sql(batch: rs.Batch) -> None:
    """Add one with the application's own SQL, in the batch's transaction."""
    batch.execute(ADD_ONE, [[row["id"] for row in batch.rows]])


@rs.backfill("sharded-by-sql", rows=ROWS, shards=3, batch_rows=BATCH_ROWS, adapt=False)
def sharded_by_sql(batch: rs.Batch) -> None:
    """Add one with the application's own SQL, in one of several jobs."""
    batch.execute(ADD_ONE, [[row["id"] for row in batch.rows]])


@rs.backfill("by-frame", rows=ROWS, batch_rows=BATCH_ROWS, adapt=False)
def by_frame(batch: rs.Batch) -> pl.DataFrame:
    """Add one in polars; the frame is written back in bulk."""
    return batch.frame.select("id", n=pl.col("n") + 1)


def two_processes() -> ProcessPoolExecutor:
    """Make the pool of one pass."""
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


@rs.backfill("by-executor", rows=ROWS, batch_rows=BATCH_ROWS, adapt=False, executor=two_processes)
def by_executor(batch: rs.Batch) -> pl.DataFrame:
    """Add one in another process, several pages ahead."""
    return batch.frame.select("id", n=pl.col("n") + 1)


@rs.backfill("waiting-on-the-server", rows=ROWS, statement_timeout="60s", batch_rows=BATCH_ROWS, adapt=False)
def waiting_on_the_server(batch: rs.Batch) -> None:
    """Add one in a statement that may take long, by the trigger."""
    batch.execute(ADD_ONE, [[row["id"] for row in batch.rows]])


@rs.backfill("deaf", rows=ROWS, batch_rows=BATCH_ROWS, adapt=False)
def deaf(batch: rs.Batch) -> None:
    """Add one, then listen to nobody for as long as the table `deafness` says."""
    batch.execute(ADD_ONE, [[row["id"] for row in batch.rows]])
    (seconds,) = batch.execute("select seconds from deafness").fetchone()
    time.sleep(seconds)


@rs.backfill("outside", rows=ROWS, atomic=False, batch_rows=BATCH_ROWS, adapt=False)
def outside(batch: rs.Batch) -> None:
    """Add one elsewhere, as a call to another system would: committed by itself, and the call noted under its key."""
    ids = [row["id"] for row in batch.rows]
    with psycopg.connect(os.environ["DATABASE_URL"]) as elsewhere:
        elsewhere.execute(ADD_ONE, [ids])
        elsewhere.execute(
            "insert into calls (key, first, last, rows) values (%s, %s, %s, %s)", [batch.key, ids[0], ids[-1], len(ids)]
        )


class Poisoned(Exception):
    """What is wrong with a row, which no other try can mend."""

    retry = "terminal"


def _refuse_poisoned(ids: list[int]) -> None:
    if any(number % POISONED == 0 for number in ids):
        raise Poisoned("one of them is poisoned")


@rs.backfill("aside", rows=ROWS, batch_rows=BATCH_ROWS, adapt=False, on_error="set-aside")
def aside(batch: rs.Batch) -> None:
    """Add one, and only then find out that a row is poisoned."""
    ids = [row["id"] for row in batch.rows]
    batch.execute(ADD_ONE, [ids])
    _refuse_poisoned(ids)


@rs.backfill("aside-outside", rows=ROWS, atomic=False, batch_rows=BATCH_ROWS, adapt=False, on_error="set-aside")
def aside_outside(batch: rs.Batch) -> None:
    """Add one elsewhere unless a row is poisoned: committed by itself, and noted under the batch's key."""
    ids = [row["id"] for row in batch.rows]
    _refuse_poisoned(ids)
    with psycopg.connect(os.environ["DATABASE_URL"]) as elsewhere:
        elsewhere.execute(ADD_ONE, [ids])
        elsewhere.execute(
            "insert into calls (key, first, last, rows) values (%s, %s, %s, %s)", [batch.key, ids[0], ids[-1], len(ids)]
        )


@rs.job("apart", tenant="none", retry=rs.Retry(attempts=1_000))
def apart(ctx: rs.Ctx) -> None:
    """Sweep by hand and wrongly: each page's writes are committed, and only then its checkpoint."""
    pages = ctx.step.checkpoint("pages")
    at: Any = pages.get() or {"last": 0}
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as elsewhere:
        while True:
            page = {"after": at["last"], "to": at["last"] + BATCH_ROWS}
            changed = elsewhere.execute("update counted set n = n + 1 where id > %(after)s and id <= %(to)s", page)
            if not changed.rowcount:
                return
            at = {"last": at["last"] + changed.rowcount}
            pages.put(at)


def _aged() -> list[Any]:
    return [rs.older_than("aged", "created_at", days=90)]


purging = rs.purge(
    "purging", targets=_aged, batch_rows=BATCH_ROWS, adapt=False, confirm=1.0, retry=rs.Retry(attempts=20, base="100ms")
)

exporting = rs.export_rows(
    "exporting", rs.Rows("goods"), "exported", part_rows=BATCH_ROWS, retry=rs.Retry(attempts=20, base="100ms")
)

exporting_sharded = rs.export_rows(
    "exporting-sharded", rs.Rows("goods"), "exported", shards=3, part_rows=BATCH_ROWS,
    retry=rs.Retry(attempts=20, base="100ms"),
)  # fmt: skip


@rs.job("exporting-apart", tenant="none", retry=rs.Retry(attempts=1_000))
def exporting_apart(ctx: rs.Ctx) -> None:
    """Export by hand and wrongly: each part gets the next free name, and only then is the place behind it kept."""
    pages = ctx.step.checkpoint("pages")
    at: Any = pages.get() or {"last": 0}
    folder = Path("exported")
    folder.mkdir(exist_ok=True)
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as elsewhere:
        while True:
            query = "select id from goods where id > %s order by id limit %s"
            ids = [number for (number,) in elsewhere.execute(query, [at["last"], BATCH_ROWS])]
            if not ids:
                return
            name = f"part-{len(list(folder.iterdir())):05d}.parquet"
            pl.DataFrame({"id": ids}, schema={"id": pl.Int64}).write_parquet(folder / name)
            elsewhere.execute("select pg_sleep(least + random() * (most - least)) from pace")
            at = {"last": ids[-1]}
            pages.put(at)


SWEEPS: dict[str, rs.Sweep[Any]] = {
    sweep.name: sweep
    for sweep in (
        by_set,
        sharded,
        sharded_by_sql,
        paced,
        unmarked,
        by_sql,
        by_frame,
        by_executor,
        waiting_on_the_server,
        deaf,
        outside,
        aside,
        aside_outside,
        purging,
        exporting,
        exporting_sharded,
    )
}


def launch(name: str) -> dict[str, Any]:
    """Launch a sweep, or enqueue the job, over the connected app; answer the run's id and whether it attached."""
    if name in ("apart", "exporting-apart"):
        queued = (apart if name == "apart" else exporting_apart).enqueue()
        return {"run_id": str(queued.run_id), "attached": queued.deduplicated}
    run = SWEEPS[name].launch()
    return {"run_id": str(run.run_id), "attached": run.attached}


def main() -> None:
    """Work what is declared here until the process is killed; with `--launch` launch that first, once told to."""
    from rowsweep.telemetry.console import configure_logging

    given = _given()
    configure_logging(json=True, level="debug")
    app = rs.connect(work=False, actor=given.name)
    worker = app.worker(
        id=given.name, concurrency=1, visibility=given.visibility, poll="100ms", poll_floor="50ms", announce_every="1s"
    )
    if given.launch is not None:
        _say(event="ready")
        sys.stdin.readline()
        _say(event="launched", **launch(given.launch))
    worker.start()
    threading.Event().wait()


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--visibility", default="2s")
    parser.add_argument("--launch")
    return parser.parse_args()


def _say(**fields: object) -> None:
    sys.stderr.write(json.dumps(fields) + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
