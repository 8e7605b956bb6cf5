"""How much faster a CPU-bound handler is on two processes than on one, both through an executor."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final

import polars as pl

import rowsweep as rs
from benchmarks.measure import Figure, interleave
from benchmarks.sweep import swept
from benchmarks.tables import ROUNDS, make_orders
from rowsweep.sweeps.handle import Sweep

_ROWS: Final = 200_000
_NAMES: Final = ("customer-1234", "costumer-5678", "client-9012", "patron-345", "customer-78", "consumer-9")


def matched(batch: rs.Batch) -> pl.DataFrame:
    """Find the nearest of some names, letter by letter, in Python alone: some 0.2 ms a row."""
    nearest = [min(_NAMES, key=lambda name: _distance(name, given)) for given in batch.frame["customer"]]
    return batch.frame.select("id", band=pl.Series(nearest, dtype=pl.String))


def _distance(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for above, letter in enumerate(one, 1):
        before, row[0] = row[0], above
        for at, another in enumerate(other, 1):
            before, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, before + (letter != another))
    return row[-1]


def executor() -> Figure:
    """Measure both over the same table, made anew: claim, start of the pool, pages, checkpoints, ledger, settle."""
    one, two = (_on(processes) for processes in (1, 2))
    medians = interleave(lambda: _swept(two), lambda: _swept(one), ROUNDS)
    return Figure(name="scale.executor", unit="rows/s", ours=medians.ours, reference=medians.reference, bar=1.6)


def _on(processes: int) -> Sweep[Any]:
    def pool() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))

    rows = rs.Rows("ours", columns=["id", "customer"])
    return rs.backfill(
        f"matched-{processes}", matched, rows=rows, batch_rows=2_000, adapt=False, executor=pool, ahead=4
    )


def _swept(sweep: Sweep[Any]) -> float:
    make_orders("ours", _ROWS)
    return swept(sweep, _ROWS)


FIGURES: dict[str, Callable[[], Figure]] = {"scale.executor": executor}
