"""How fast a purge is beside a loop written by hand, and whether its batches stay as fast under an old snapshot.

Every measurement is of one whole purge of half of a table made anew: claim, gate, setup, counts, batches, settle.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable
from typing import Any

import psycopg

import rowsweep as rs
from benchmarks.loops import delete_address_loop, delete_loop, delete_range_loop
from benchmarks.measure import Figure, interleave
from benchmarks.tables import ROUNDS, ROWS, dsn, make_events, worked

Loop = Callable[[str, str, int], int]

_EXPIRED = ROWS // 2


def _targets() -> list[Any]:
    return [rs.older_than("ours", "created_at", days=90)]


def _purge(name: str, batch_rows: int) -> rs.Purge:
    return rs.purge(
        name, targets=_targets, batch_rows=batch_rows, adapt=False, confirm=1.0, budget=rs.Budget(time="1h", rows=ROWS)
    )


def _delete(batch_rows: int) -> Figure:
    purge = _purge(f"delete-{batch_rows}", batch_rows)
    loop = _faster(batch_rows)

    def ours() -> float:
        make_events("ours")
        return _EXPIRED / _purged(purge)

    def reference() -> float:
        make_events("reference")
        return _EXPIRED / _timed(loop, batch_rows)

    medians = interleave(ours, reference, ROUNDS)
    return Figure(
        name=f"purge.delete.{batch_rows}", unit="rows/s", ours=medians.ours, reference=medians.reference, bar=0.9
    )


def _faster(batch_rows: int) -> Loop:
    """Take the fastest of three forms of the reference on this machine."""

    def seconds(loop: Loop) -> float:
        make_events("reference", min(ROWS, 500_000))
        return _timed(loop, batch_rows)

    return min((delete_loop, delete_address_loop, delete_range_loop), key=seconds)


def _timed(loop: Loop, batch_rows: int) -> float:
    gc.collect()
    began = time.perf_counter()
    loop(dsn(), "reference", batch_rows)
    return time.perf_counter() - began


def _purged(purge: rs.Purge) -> float:
    """Purge through a worker, and answer how many seconds it took."""
    run = purge.launch()
    seconds = worked()
    assert run.wait("10s")["total"] == _EXPIRED
    return seconds


class _Batches(logging.Handler):
    """Note how long each batch took."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.milliseconds: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Note one."""
        if record.getMessage() == "sweeps.batch":
            self.milliseconds.append(float(record.__dict__["fields"]["duration_ms"]))


def flat() -> Figure:
    """Compare the last tenth of the batches with the first, while a snapshot from before keeps every dead row."""
    make_events("ours")
    purge, batches, logger = _purge("flat", 1_000), _Batches(), logging.getLogger("rowsweep")
    level, propagates = logger.level, logger.propagate
    with psycopg.connect(dsn()) as old:
        old.execute("set transaction isolation level repeatable read")
        old.execute("select count(*) from ours where id = 1")
        logger.addHandler(batches)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        try:
            _purged(purge)
        finally:
            logger.removeHandler(batches)
            logger.setLevel(level)
            logger.propagate = propagates
    tenth = len(batches.milliseconds) // 10
    first, last = batches.milliseconds[:tenth], batches.milliseconds[-tenth:]
    return Figure(
        name="purge.flat", unit="ms/batch", ours=sum(last) / tenth, reference=sum(first) / tenth, bar=1.5,
        better="lower",
    )  # fmt: skip


FIGURES: dict[str, Callable[[], Figure]] = {
    "purge.delete.1000": lambda: _delete(1_000),
    "purge.delete.5000": lambda: _delete(5_000),
    "purge.flat": flat,
}
