"""How many rows the next batch takes."""

from __future__ import annotations

from typing import Final

TARGET_MS: Final = 250.0
LEAST_ROWS: Final = 100
MOST_ROWS: Final = 10_000
_KEPT: Final = 0.75
_FIRST_ADAPTED: Final = 3


class BatchSize:
    """Start at the declared size and adapt it towards 250 ms a batch; halve it when a batch could not be done.

    After a full page the size becomes size times clamp(250 ms / smoothed duration, 0.5, 1.2), within 100…10,000
    (widened to hold the declared size), from the third batch on. With `adapt=False` it only falls, and comes back by
    doubling. Adapted sizes have two significant digits: few sizes, so few statements to plan. While `may_grow` is
    false it never grows.
    """

    def __init__(self, start: int, *, adapt: bool) -> None:
        self.may_grow = True
        self._adapt = adapt
        self._begin(start)

    def _begin(self, start: int) -> None:
        self.rows = start
        self._start = start
        self._least = min(LEAST_ROWS, start)
        self._most = max(MOST_ROWS, start)
        self._smoothed_ms: float | None = None
        self._last = 0
        self._done = 0

    @property
    def is_settled(self) -> bool:
        """Whether the next batch will most likely take as many rows as the last one."""
        return self._last == self.rows and (not self._adapt or self.rows == self._most)

    def completed(self, *, is_full: bool, duration_ms: float) -> None:
        """Note a batch that was done: whether its page was full, and how long it took."""
        self._done += 1
        self._last = self.rows
        kept = self._smoothed_ms
        self._smoothed_ms = duration_ms if kept is None else _KEPT * kept + (1 - _KEPT) * duration_ms
        if not is_full:
            return
        was = self.rows
        if self.rows < (self._least if self._adapt else self._start):
            self.rows = min(self.rows * 2, self._start)
        elif self._adapt and self._done >= _FIRST_ADAPTED:
            factor = min(max(TARGET_MS / max(self._smoothed_ms, 0.001), 0.5), 1.2)
            self.rows = min(max(_two_digits(self.rows * factor), self._least), self._most)
        if not self.may_grow:
            self.rows = min(self.rows, was)

    def halve(self) -> None:
        """Take half as many rows, at least one."""
        self.rows = max(self.rows // 2, 1)
        self._smoothed_ms = None
        self._done = 0

    def ease(self) -> None:
        """Take half as many rows, as few as the size is adapted down to: the database is under strain."""
        self.rows = min(self.rows, max(self.rows // 2, self._least))

    def restart_at(self, rows: int) -> None:
        """Begin anew at another size, as an operator asked."""
        self._begin(rows)


def _two_digits(size: float) -> int:
    return int(float(f"{size:.1e}"))
