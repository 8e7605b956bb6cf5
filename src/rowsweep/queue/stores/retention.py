"""What the queue's own tables may let go of, and the store that removes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, get_args

if TYPE_CHECKING:
    from datetime import datetime

RetentionKind = Literal[
    "done-jobs",
    "cancelled-jobs",
    "failed-jobs",
    "dead-jobs",
    "events",
    "outbox",
    "minute-counters",
    "hour-counters",
    "day-counters",
    "workers",
    "slots",
    "purges",
]
RETENTION_KINDS: Final[tuple[RetentionKind, ...]] = get_args(RetentionKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What one statement removed: how many rows, and the instant of the last (None where there were none)."""

    rows: int
    last_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Removable:
    """How many rows could go, and the instants of the oldest and the newest."""

    rows: int
    oldest_at: datetime | None = None
    newest_at: datetime | None = None


class RetentionStore(Protocol):
    """Remove what is over and kept long enough; every kind has one instant by which it ages.

    A job's steps go with the last job of its run. Of the ledger only the rows of ended purges can go, whatever is
    asked: the others say what was applied. A counter goes once a coarser one holds it.
    """

    def now(self) -> datetime:
        """Answer the clock that every row is stamped by."""

    def remove(
        self, kind: RetentionKind, *, before: datetime, after: datetime | None = None, limit: int = 1_000
    ) -> Removed:
        """Remove up to so many rows of a kind, the oldest first, in one statement; rows locked elsewhere are skipped.

        `after` is where the call before left off: what it removed need not be walked over again.
        """

    def removable(self, kind: RetentionKind, *, before: datetime) -> Removable:
        """Count what `remove` could remove."""
