"""What holds work back across the fleet: slots under a cap, and pauses."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rowsweep.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from rowsweep.queue.records import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One place under a cap, held for one claim."""

    lease_key: str
    slot: int
    claim: Claim

    @property
    def holder(self) -> str:
        """Who holds it, as its row says."""
        return holder_of(self.claim)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotHolder:
    """Who holds a slot of a key, until when."""

    slot: int
    holder: str
    job_id: UUID
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """One row of `x_job_pauses`: a queue, a name, or a name on one queue is held from the next claim on."""

    queue: str | None
    name: str | None
    paused_at: datetime
    paused_by: str | None
    reason: str | None


def holder_of(claim: Claim) -> str:
    """Answer what a slot's row calls its holder: `<worker id>:<job id>:<claim>`."""
    return f"{claim.worker_id}:{claim.job_id}:{claim.claim}"


def check_pair(queue: str | None, name: str | None) -> None:
    """Refuse a pause that names neither a queue nor a job: it would hold everything. Raises InvalidOption."""
    if "" in (queue, name) or (queue is None and name is None):
        raise InvalidOption(
            f"a pause names a queue, a job, or both; it named queue={queue!r}, name={name!r}.",
            fix='queue="default"',
            meta={"option": "queue"},
        )


class SlotStore(Protocol):
    """Give out the slots of caps that hold across the fleet; each method is one statement."""

    def acquire(self, key: str, *, limit: int, ttl_seconds: float, claim: Claim) -> Slot | None:
        """Take a free slot of the key, or one whose holder let it expire; None where none is free.

        A slot taken from a holder whose job still stands under its claim ends that claim: what the former holder
        writes under its fence is refused from then on, and its job is delivered again. While such a holder is inside
        a fenced transaction its slot counts as held. Asked again for one claim, it answers the slot that claim has. A
        limit of zero or less sends nothing.
        """

    def renew(self, slots: Sequence[Slot], *, ttl_seconds: float) -> list[bool]:
        """Extend slots from the database's now; False where one has expired or is another's."""

    def release(self, slots: Sequence[Slot]) -> list[bool]:
        """Give slots back; False where one was another's already."""

    def holders(self, key: str) -> list[SlotHolder]:
        """Answer who holds the key's slots, by slot."""


class PauseStore(Protocol):
    """Keep pauses; each verb done twice is done once."""

    def pause(
        self, *, queue: str | None = None, name: str | None = None, reason: str | None = None, by: str | None = None
    ) -> Pause:
        """Hold a queue, a name, or a name on one queue; answers the pause that stands. Raises InvalidOption."""

    def resume(self, *, queue: str | None = None, name: str | None = None) -> bool:
        """Take away the pause of exactly this pair and wake who may claim what it held; False where there was none."""

    def list(self) -> builtins.list[Pause]:
        """Answer the pauses, the oldest first."""
