"""What a schedule keeps: a watermark a task, the occurrence that moves it, and who leads the schedulers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from rowsweep.jobs.request import EnqueueResult, NewJob


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledFire:
    """Fire one occurrence of a task: its jobs, and what the watermark becomes with them.

    `former_at` is the watermark that this was decided on; None asks only that it lies before the occurrence.
    """

    task: str
    occurrence_at: datetime
    watermark_at: datetime
    jobs: Sequence[NewJob]
    former_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """Who leads, since when, and until when unless renewed."""

    name: str
    holder: str
    acquired_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease as its holder asks for it."""

    name: str
    holder: str
    seconds: float


class ScheduleStore(Protocol):
    """Keep a watermark a task: no occurrence up to it is fired any more."""

    def last_fired_at(self, task: str) -> datetime | None:
        """Answer a task's watermark, None for one that was never armed."""

    def watermarks(self) -> Mapping[str, datetime]:
        """Answer every task's watermark, in one statement."""

    def mark_fired(self, task: str, at: datetime) -> datetime:
        """Arm a task that is seen for the first time; answer the watermark that stands, another's included."""

    def fire(self, fire: ScheduledFire) -> list[EnqueueResult | None] | None:
        """Move the watermark and insert the jobs in one statement; None, and nothing done, where it is another.

        The watermark's update is the fence: it moves only while it is the one this was decided on, and lies before
        the occurrence. One result a job, in order; a job whose key a live one already has is answered by that one, or
        None where it has just finished.
        """


class LeaderStore(Protocol):
    """Keep one expiring lease a name; the database's clock decides."""

    def acquire(self, name: str, holder: str, *, lease_seconds: float) -> bool:
        """Take the lease where it is free or expired, or renew the holder's own; say whether it is the holder's."""

    def release(self, name: str, holder: str) -> bool:
        """Give the holder's lease back; False where it was not the holder's."""

    def get(self, name: str) -> Leadership | None:
        """Answer who holds the lease, None where nobody does."""
