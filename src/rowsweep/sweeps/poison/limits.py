"""How many rows may be set aside before the sweep itself is what fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rowsweep.errors import TooManyRejected

if TYPE_CHECKING:
    from uuid import UUID

MOST_SHARE: Final = 0.25
LEAST_SEEN: Final = 50


@dataclass(slots=True, kw_only=True)
class Limits:
    """Refuse to set aside more than `most` rows of a run, or more than a quarter of what it has seen.

    `seen` and `rejected` are the run's so far. The share is judged from fifty rows on; not at all where `most_share` is
    None, as over rows that are known to fail.
    """

    sweep: str
    run_id: UUID
    most: int
    seen: int
    rejected: int
    most_share: float | None = MOST_SHARE

    def check(self, found: int, *, rows: int, said: str) -> None:
        """Refuse where so many more rejected ones among at most so many more rows are too many; `said` is the last's.

        Raises TooManyRejected.
        """
        rejected, seen = self.rejected + found, self.seen + rows
        if rejected > self.most:
            raise self.exceeded(said)
        if self.most_share is not None and seen >= LEAST_SEEN and rejected > self.most_share * seen:
            raise self._refused(
                f"{rejected:,} of {seen:,} rows fail by themselves, more than {self.most_share:.0%}: that looks like a "
                f"bug, not like bad rows.",
                said,
            )

    def exceeded(self, said: str) -> TooManyRejected:
        """Make the refusal of one row more than may be set aside."""
        return self._refused(f"More rows fail by themselves than max_rejected={self.most:,}.", said)

    def done(self, *, rows: int, rejected: int) -> None:
        """Note rows that were done and rows that were set aside."""
        self.seen += rows + rejected
        self.rejected += rejected

    def _refused(self, cause: str, said: str) -> TooManyRejected:
        return TooManyRejected(
            f"{self.sweep!r} stops: {cause} The last one, {said}",
            fix=f"mend the sweep or the rows; those of batches before: rowsweep sweeps rejected {self.run_id}",
            meta={"run_id": str(self.run_id), "max_rejected": self.most, "rejected": self.rejected},
        )
