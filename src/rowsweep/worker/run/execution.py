"""What one execution came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from rowsweep.queue.verdicts import Verdict

Outcome = Literal["completed", "suspended", "retried", "dead-lettered", "dropped", "refused", "interrupted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Report one execution; `steps` ran here, `replayed` were answered from their stored output."""

    outcome: Outcome
    job_id: UUID
    job: str
    attempt: int
    duration_ms: int
    error: BaseException | None = None
    resume_at: datetime | None = None
    steps: tuple[str, ...] = ()
    replayed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run ends: its outcome and the verdict to settle by, None where there is nothing left to settle."""

    outcome: Outcome
    verdict: Verdict | None
    error: BaseException | None = None
    delay_seconds: float | None = None
    resume_at: datetime | None = None
