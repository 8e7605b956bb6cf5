"""How long a pass's own batches take beside those it did before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_LEAST_BATCHES: Final = 10
_USUAL_KEPT: Final = 0.995
_LATEST_KEPT: Final = 0.75


@dataclass(slots=True)
class _Times:
    batches: int = 0
    usual: float = 0.0
    latest: float = 0.0


class BatchTimes:
    """Compare the latest batches with the usual ones of about as many rows: small ones cost more a row in any weather.

    What is usual follows slowly, so that rows which cost more for good are the usual ones after a while.
    """

    def __init__(self) -> None:
        self._by_size: dict[int, _Times] = {}
        self.times_as_long: float | None = None

    def done(self, rows: int, seconds: float) -> None:
        """Note a batch."""
        times = self._by_size.setdefault(rows.bit_length(), _Times())
        if not times.batches:
            times.usual = times.latest = seconds
        times.latest = _LATEST_KEPT * times.latest + (1 - _LATEST_KEPT) * seconds
        enough = times.batches >= _LEAST_BATCHES
        self.times_as_long = times.latest / max(times.usual, 1e-6) if enough else None
        kept = _USUAL_KEPT if enough else times.batches / (times.batches + 1)
        times.usual = kept * times.usual + (1 - kept) * seconds
        times.batches += 1
