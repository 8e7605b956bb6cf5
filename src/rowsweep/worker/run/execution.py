"""What one execution came to."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from rowsweep.queue.verdicts import Verdict

Outcome = Literal["completed", "suspended", "retried", "dead-lettered", "dropped", "refused", "interrupted"]
LABELS: Final = MappingProxyType(
    {
        "completed": "ok",
        "retried": "failed",
        "dead-lettered": "dead",
        "dropped": "dropped",
        "refused": "refused",
        "interrupted": "interrupted",
    }
)
FAILED: Final = frozenset({"retried", "dead-lettered", "dropped", "refused"})


# Neither is frozen: one of each is made for every run, and freezing takes three times as long.
@dataclass(slots=True, kw_only=True)
class Execution:
    """Report one execution; `steps` ran here, `replayed` were answered from their stored output.

    `deferred` says that a rate limit put it off, which is no failure.
    """

    outcome: Outcome
    job_id: UUID
    job: str
    attempt: int
    duration_ms: int
    error: BaseException | None = None
    resume_at: datetime | None = None
    steps: tuple[str, ...] = ()
    replayed: tuple[str, ...] = ()
    deferred: bool = False

    @property
    def label(self) -> str | None:
        """Answer what the metrics count it under: nothing for a suspension or a deferral."""
        return None if self.deferred else LABELS.get(self.outcome)

    @property
    def failure(self) -> BaseException | None:
        """Answer what it failed with, None where it did not fail."""
        return self.error if self.outcome in FAILED and not self.deferred else None


@dataclass(slots=True, kw_only=True)
class Ending:
    """How a run ends: its outcome and the verdict to settle by, None where there is nothing left to settle."""

    outcome: Outcome
    verdict: Verdict | None
    error: BaseException | None = None
    delay_seconds: float | None = None
    resume_at: datetime | None = None
