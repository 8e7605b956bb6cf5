"""Measure ours against its reference in one run: interleaved rounds, medians, a ratio with its bar."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured pair.

    `ratio` is ours / reference, both in `unit`. It holds at `bar` or above where `better` is higher, at `bar` or
    below where it is lower (seconds, megabytes). `peer` is whose the reference is, where there are several.
    """

    name: str
    unit: str
    ours: float
    reference: float
    bar: float
    better: Better = "higher"
    peer: str | None = None

    @property
    def ratio(self) -> float:
        """Ours / reference."""
        return self.ours / self.reference

    @property
    def holds(self) -> bool:
        """Whether the ratio is on the right side of the bar."""
        return self.ratio >= self.bar if self.better == "higher" else self.ratio <= self.bar

    def as_json(self) -> str:
        """Write the figure as one line of JSON."""
        fields = {
            "name": self.name,
            **({} if self.peer is None else {"peer": self.peer}),
            "unit": self.unit,
            "ours": round(self.ours, 5),
            "reference": round(self.reference, 5),
            "ratio": round(self.ratio, 4),
            "bar": self.bar,
            "better": self.better,
            "holds": self.holds,
        }
        return json.dumps(fields)


@dataclass(frozen=True, slots=True)
class Medians:
    """The medians of both sides over the rounds."""

    ours: float
    reference: float


def interleave(ours: Callable[[], float], reference: Callable[[], float], rounds: int = 5) -> Medians:
    """Call both once a round and answer the medians of what they say.

    The order turns with every round, so that neither side always finds the caches warmed by the other. Each side
    measures itself (`rate` helps), so that its own preparation does not count.
    """
    mine: list[float] = []
    theirs: list[float] = []
    sides = [(ours, mine), (reference, theirs)]
    for number in range(rounds):
        for measure, values in sides if number % 2 == 0 else reversed(sides):
            values.append(measure())
    return Medians(statistics.median(mine), statistics.median(theirs))


def rate(work: Callable[[], int]) -> float:
    """Do some work that answers how many rows (jobs, batches) it did, and answer how many a second."""
    start = time.perf_counter()
    amount = work()
    return amount / (time.perf_counter() - start)


def seconds(work: Callable[[], object]) -> float:
    """Do some work and answer how long it took."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
