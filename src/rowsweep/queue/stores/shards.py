"""What the jobs of one run share: each one's figures in their ledger row, and locks on each other's rows."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence
    from uuid import UUID

    from rowsweep.queue.records import Claim, JobState
    from rowsweep.queue.stores.ledger import BatchClose, BatchClosed

ShardStatus = Literal["waiting", "running", "done", "failed", "cancelled"]
MOST_SHARDS: Final = 64
_SUFFIX: Final = re.compile(r":s([0-9]{2})\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFigures:
    """What the ledger shows of one shard: absolute figures, and the range it is in, `(after, to]` as key texts.

    `after` is None for the range that begins with the table, `to` for the one that has no end.
    """

    number: int
    status: ShardStatus
    rows: int = 0
    written: int = 0
    batches: int = 0
    cursor: Any = None
    after: Any = None
    to: Any = None
    active_seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Answer them as the ledger row keeps them."""
        return {name: value for name, value in asdict(self).items() if name != "number"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardJob:
    """One shard of a run: its job, None once that was removed, with the job's state; and its checkpoint."""

    number: int
    job_id: UUID | None
    state: JobState | None
    checkpoint: Any


class ShardStore(Protocol):
    """Keep what the jobs of one run share."""

    def put(self, claim: Claim, run_id: UUID, shards: Sequence[ShardFigures]) -> bool:
        """Write every shard's figures into the ledger row, under the claim of one of them."""

    def move(self, close: BatchClose) -> BatchClosed:
        """Close a batch as the ledger's `progress` does; the shared row is moved only where nobody else has it.

        Its totals are the sums over the shards; a shard that could not report does so with its next batch.
        """

    def jobs(self, run_id: UUID, *, step: str) -> builtins.list[ShardJob]:
        """Answer the run's shards in order, as the checkpoints of that name tell them."""

    def hold(self, claim: Claim, job_id: UUID) -> bool | None:
        """Lock another job's row, with that of the claim, until the transaction ends.

        True where both are locked, False where the claim is gone, None where the other's row is not to be had now.
        """

    def stop(self, claim: Claim, number: int) -> bool | None:
        """Cancel a shard's own job where the run is to stop.

        True where it is cancelled, False where the claim is gone, None where nobody wants it stopped any more.
        """

    def revive(self, claim: Claim) -> int:
        """Make the run's other jobs due again that ended without having to, where the run goes on; answer how many.

        One that was requeued by itself takes the others up with it.
        """

    def ended(self, run_id: UUID) -> None:
        """Make the first job due, which waits for the others; in a run that is to stop, every one that waits."""


def shard_suffix(number: int) -> str:
    """Answer what ends the keys and the steps of a shard's job: nothing for the first."""
    return "" if number == 1 else f":s{number:02d}"


def shard_number(key: str | None) -> int:
    """Answer which shard a job is by its concurrency key, or a step by its name: 1 for one without a suffix."""
    found = _SUFFIX.search(key or "")
    return int(found[1]) if found else 1
