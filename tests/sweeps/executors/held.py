"""Sweeps in threads whose handler a test holds up."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import SweepFailed
from tests.sweeps.executors import heavy
from tests.sweeps.field import Field, until, wait_for

ORDERS = heavy.ORDERS


def over(threads: Any, handler: Any = heavy.doubled, *, name: str = "heavy", **given: Any) -> Any:
    """Declare a sweep of pages of four rows that runs in these threads."""
    options: dict[str, Any] = {"rows": ORDERS, "batch_rows": 4, "adapt": False, "ahead": 3}
    return rs.backfill(name, handler, executor=threads, **(options | given))


class Held:
    """Hold up the handler at one batch, until it is let go."""

    def __init__(self, index: int) -> None:
        self.reached = threading.Event()
        self.free = threading.Event()
        self.calls: list[tuple[int, int]] = []
        self._index = index
        heavy.hooks.append(self)

    def __call__(self, batch: rs.Batch) -> None:
        self.calls.append((batch.index, batch.frame.height))
        if batch.index == self._index and not self.free.is_set():
            self.reached.set()
            wait_for(self.free)

    def until_called(self, times: int) -> None:
        until(lambda: len(self.calls) >= times, f"{times} calls")


def failed(field: Field, sweep: Any) -> Any:
    """Sweep to a failure and answer the ledger's row."""
    run = sweep.launch()
    with pytest.raises(SweepFailed):
        field.finish(run)
    return field.row(run)
