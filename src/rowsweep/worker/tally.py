"""What a worker has done, counted in one place."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rowsweep.worker.run.execution import Outcome

WorkerState = Literal["idle", "running", "draining", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStats:
    """A worker at one instant; `processed` counts completed runs only, `abandoned` bodies that were left behind."""

    id: str | None
    state: WorkerState
    in_flight: int
    processed: int
    interrupted: int
    abandoned: int
    outcomes: Mapping[str, int]


class Tally:
    """Count how runs ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcomes: Counter[str] = Counter()
        self.abandoned = 0

    @property
    def processed(self) -> int:
        """Answer how many runs completed."""
        return self._outcomes["completed"]

    @property
    def interrupted(self) -> int:
        """Answer how many runs were interrupted."""
        return self._outcomes["interrupted"]

    @property
    def outcomes(self) -> dict[str, int]:
        """Answer the counts by outcome."""
        with self._lock:
            return dict(self._outcomes)

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Count runs that ended."""
        with self._lock:
            self._outcomes.update(outcomes)

    def leave_behind(self) -> None:
        """Count one body that goes on past its run's end."""
        with self._lock:
            self.abandoned += 1
