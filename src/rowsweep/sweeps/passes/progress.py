"""What a pass tells the ledger: absolute totals, active time, and a bounded series of samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rowsweep.clock import real_monotonic
from rowsweep.queue.stores.ledger import MOST_SAMPLES, SweepTotals

if TYPE_CHECKING:
    from rowsweep.queue.stores.ledger import Backfill
    from rowsweep.sweeps.passes.position import Position

_SAMPLE_SECONDS: Final = 1.0


class Progress:
    """Keep a pass's active time and samples; takes up what former attempts left in the ledger row."""

    def __init__(self, row: Backfill | None) -> None:
        self._base = 0.0 if row is None else row.active_seconds
        self._samples: list[list[float]] = [] if row is None else [list(pair) for pair in row.samples or ()]
        self._since = real_monotonic()
        self._last_sample = self._samples[-1][0] if self._samples else None

    @property
    def active_seconds(self) -> float:
        """Time a pass has been at work on this run, over all attempts; pauses and downtime are not in it."""
        return self._base + (real_monotonic() - self._since)

    def rested(self, seconds: float) -> None:
        """Note time that was no work: the pass was held."""
        self._since += seconds

    def totals(self, at: Position, *, final: bool = False) -> SweepTotals:
        """Answer the figures at a position, with the samples where one is due (one a second at most)."""
        active = self.active_seconds
        samples = self._sampled(active, at.rows, final=final)
        return SweepTotals(
            rows=at.rows,
            written=at.written,
            batches=at.batches,
            cursor=None if at.cursor is None else list(at.cursor),
            active_seconds=round(active, 3),
            samples=samples,
        )

    def _sampled(self, active: float, rows: int, *, final: bool) -> Any:
        if not final and self._last_sample is not None and active - self._last_sample < _SAMPLE_SECONDS:
            return None
        self._last_sample = active
        self._samples.append([round(active, 3), rows])
        if len(self._samples) > MOST_SAMPLES:
            del self._samples[1::2]
        return self._samples
