"""Handlers for executors, in a module that a spawned process can import without the tests.

Where the executor is a pool of threads they call what a test has set: `hooks` are this process's.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

import rowsweep as rs

hooks: list[Callable[[rs.Batch], object]] = []
ORDERS = rs.Rows("orders", columns=["id", "qty"])


class OddError(Exception):
    """An error that cannot be made again from its pickled arguments."""

    retry = "terminal"

    def __init__(self, row: int, *, why: str) -> None:
        super().__init__(f"row {row} is odd: {why}")


def doubled(batch: rs.Batch) -> pl.DataFrame:
    """Write twice the quantity into the total."""
    frame = batch.frame.select("id", total=(pl.col("qty") * 2).cast(pl.Decimal(12, 2)))
    for hook in hooks:
        hook(batch)
    return frame


@rs.backfill("declared-under-a-decorator", rows=ORDERS, batch_rows=4, adapt=False)
def decorated(batch: rs.Batch) -> pl.DataFrame:
    """Write the quantity into the total; its name here is the sweep's."""
    return batch.frame.select("id", total="qty")


def by_rows(batch: rs.Batch) -> list[dict[str, Any]]:
    """Compute over dicts, and answer dicts."""
    for hook in hooks:
        hook(batch)
    return [{"id": row["id"], "total": row["qty"] * 2} for row in batch.rows]


def placed(batch: rs.Batch) -> pl.DataFrame:
    """Write down which batch it was, its key and its input."""
    note = pl.lit(f"{batch.index} {batch.key} {batch.input} {batch.signal}")
    return batch.frame.select("id", band=note)


def odd(batch: rs.Batch) -> pl.DataFrame:
    """Raise for row 6 what only tells of itself by its text."""
    if 6 in batch.frame["id"]:
        raise OddError(6, why="six") from ValueError("the reason")
    return doubled(batch)


def unlucky(batch: rs.Batch) -> pl.DataFrame:
    """Raise for a quantity of 13."""
    if 13 in batch.frame["qty"]:
        raise ValueError("thirteen")
    return doubled(batch)


def wrong(batch: rs.Batch) -> pl.DataFrame:
    """Answer a column that the table lacks, once past the first page."""
    return doubled(batch) if batch.index == 0 else batch.frame.select("id", totl="qty")


def objects(batch: rs.Batch) -> pl.DataFrame:
    """Answer what no Arrow stream takes."""
    return batch.frame.select("id").with_columns(pl.Series("total", [object() for _ in batch.rows], dtype=pl.Object))


def executing(batch: rs.Batch) -> None:
    """Reach for the transaction."""
    batch.execute("select 1")


def stepping(batch: rs.Batch) -> None:
    """Reach for the run's context."""
    batch.ctx.step.run("x", lambda: 1)  # type: ignore[union-attr]


def counting(batch: rs.Batch) -> pl.DataFrame:
    """Add one to `hits`."""
    for hook in hooks:
        hook(batch)
    return batch.frame.select("id", hits=pl.col("hits") + 1)


def dying(batch: rs.Batch) -> pl.DataFrame:
    """Take the process down with row 10."""
    if 10 in batch.frame["id"]:
        os._exit(3)
    return doubled(batch)


def same(batch: rs.Batch) -> pl.DataFrame:
    """Answer what came, so that nothing changes."""
    return batch.frame


def same_rows(batch: rs.Batch) -> list[dict[str, Any]]:
    """Answer the dicts that came."""
    return batch.rows


def read_both(batch: rs.Batch) -> pl.DataFrame:
    """Read every form of the page."""
    assert batch.arrow.num_rows == len(batch.rows) == batch.frame.height
    return batch.frame.select("id", total=pl.Series([row["qty"] * 2 for row in batch.rows]))


def crunched(batch: rs.Batch) -> pl.DataFrame:
    """Keep a processor busy with every row, in Python alone; write down when, in the file that the input names."""
    began, totals = time.monotonic(), []
    for quantity in batch.frame["qty"]:
        value = quantity
        for step in range(600):
            value = (value * 31 + step) % 1_000_003
        totals.append(value)
    with Path(batch.input).open("a", encoding="utf-8") as spans:
        spans.write(f"{os.getpid()} {began} {time.monotonic()}\n")
    return batch.frame.select("id", total=pl.Series(totals, dtype=pl.Decimal(12, 2)))


def large(batch: rs.Batch) -> pl.DataFrame:
    """Answer some megabytes."""
    return batch.frame.select("id", band=pl.concat_str(pl.lit("x" * 20_000), pl.col("id").cast(pl.String)))


def half_answered(batch: rs.Batch) -> pl.DataFrame:
    """Die once in the middle of an answer, of which the pool has read the beginning by then."""
    if batch.index == 1 and not Path(batch.input).exists():
        Path(batch.input).touch()
        frame: Any = sys._getframe()
        while "result_queue" not in frame.f_locals:
            frame = frame.f_back
        queue = frame.f_locals["result_queue"]
        os.write(queue._writer.fileno(), struct.pack("!i", 1_000_000) + b"x" * 10)
        _until_read(queue._reader.fileno())
        os.kill(os.getpid(), signal.SIGKILL)
    return doubled(batch)


def _until_read(pipe: int) -> None:
    """Wait until nothing is left in a pipe."""
    give_up_at = time.monotonic() + 15
    while int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder):
        assert time.monotonic() < give_up_at, "the pool has not read the beginning"
        time.sleep(0.001)


def whereabouts(batch: rs.Batch) -> pl.DataFrame:
    """Write down which process computed a row; take a moment, so that another is given the next page."""
    time.sleep(0.02)
    return batch.frame.select("id", band=pl.lit(str(os.getpid())))


def tokens(batch: rs.Batch) -> pl.DataFrame:
    """Write down something else each time."""
    return batch.frame.select("id", band=pl.lit(secrets.token_hex(8)))
