"""The outbox: jobs staged by an application's own transaction, kept until a relay has published them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

from rowsweep.jobs.request import EnqueueResult

if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from rowsweep.jobs.request import NewJob
    from rowsweep.queue.stores.retention import RetentionStore
    from rowsweep.queue.wake import WakeSource

StagedStatus = Literal["pending", "dead", "published"]
STAGED: Final = "staged"


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedJob:
    """One staged job: what a publication inserts under the same id, and how its publication stands.

    `lease_until` is when it is next due: while `claimed_by` has it, the end of that lease, else of a pause.
    """

    job: NewJob
    created_at: datetime
    claimed_by: str | None = None
    lease_until: datetime | None = None
    attempts: int = 0
    last_error: str | None = None
    published_at: datetime | None = None
    dead_at: datetime | None = None

    @property
    def status(self) -> StagedStatus:
        """Answer `pending`, `dead` (nobody tries it any more) or `published`."""
        if self.published_at is not None:
            return "published"
        return "pending" if self.dead_at is None else "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPass:
    """What one claim took, by id; `next_at` is when the next row is due where nothing more was, None for unknown.

    `next_in_seconds` is how long that is from the claim, by the store's clock: the caller's may be off.
    """

    rows: list[StagedJob]
    next_at: datetime | None = None
    next_in_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """How much waits: pending rows, the age of the oldest, and the rows that nobody tries any more."""

    pending: int
    oldest_pending_seconds: float | None
    dead: int


class OutboxStore(Protocol):
    """Keep staged jobs; a relay holds what it publishes under a lease, and every write of its is fenced on that."""

    def stage(self, jobs: Sequence[NewJob]) -> list[EnqueueResult]:
        """Insert the jobs, all or none, and say so on the wake; they exist once the caller's transaction commits."""

    def claim(self, relay: str, *, limit: int, lease_seconds: float, proof: str | None = None) -> StagedPass:
        """Lease due rows to a relay, the smallest ids first; says the word `proof` on the wake.

        A row whose lease has lapsed is due again: its relay died.
        """

    def publish(self, ids: Sequence[UUID], relay: str) -> list[UUID]:
        """Mark rows of the relay's as published; answer those that were still its own."""

    def refuse(self, row: UUID, relay: str, *, error: str, delay_seconds: float, attempts: int) -> StagedJob | None:
        """Note a publication that failed: due again after the delay, dead with the last of so many attempts.

        Answers the row as it stands then, None where it was no longer the relay's.
        """

    def release(self, ids: Sequence[UUID], relay: str) -> list[UUID]:
        """Give back rows of the relay's that were not published, due at once; answer those that were its own."""

    def list(self, *, status: StagedStatus | None = None, limit: int = 100) -> list[StagedJob]:
        """Answer rows, newest first."""

    def retry(self, ids: Sequence[UUID] | None = None) -> builtins.list[UUID]:
        """Make dead rows due at once, their attempts counted anew: all of them, or those of the ids.

        Of the ids also rows that wait after a failure. Answers which were moved.
        """

    def backlog(self) -> Backlog:
        """Count what waits."""


class OutboxPlace(Protocol):
    """A database whose outbox is relayed into another one's queue."""

    @property
    def place(self) -> str:
        """Where it is, without a password."""

    @property
    def outbox(self) -> OutboxStore:
        """The outbox, each call by itself."""

    @property
    def retention(self) -> RetentionStore:
        """Removes published rows; no other kind is kept there."""

    def listen(self) -> WakeSource | None:
        """Open a session that hears of what is staged there; None where there is none to be had."""

    def close(self) -> None:
        """Close every connection."""


def staged(job: NewJob) -> EnqueueResult:
    """Answer an enqueue that was staged: the ids are those that the job will have."""
    return EnqueueResult(id=job.id, run_id=job.run_id, state=STAGED, deduplicated=False)
