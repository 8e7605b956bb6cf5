"""The ledger of sweeps: what is kept of a run, how a batch closes, and the store that keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from rowsweep.jobs.values.json_form import Json
    from rowsweep.queue.records import Claim, JobState
    from rowsweep.queue.stores.shards import ShardFigures

SweepKind = Literal["backfill", "export", "purge"]
BackfillStatus = Literal["running", "paused", "done", "failed", "cancelled"]
Wanted = Literal["run", "pause", "cancel"]
MOST_SAMPLES: Final = 240
BACKFILL_STATUSES: Final[tuple[BackfillStatus, ...]] = ("running", "paused", "done", "failed", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBackfill:
    """Open a ledger row; `status` is `running`, the counts are zero."""

    run_id: UUID
    name: str
    kind: SweepKind
    checksum: str
    environment: str
    app_version: str | None = None
    input: Json = None
    options: Json = None
    launched_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTotals:
    """Absolute figures of a sweep so far; writing the same ones twice changes nothing.

    `samples` replaces the stored series when given, `None` leaves it (and its TOAST value) alone.
    """

    rows: int
    written: int
    batches: int
    cursor: Json
    active_seconds: float
    samples: Json = None


class Behind(Protocol):
    """More that travels behind a closing statement on its connection, sent before that one's answer is read."""

    def send(self) -> None:
        """Send it; all of it is void where the statement fails."""

    def failed(self, error: Exception) -> None:
        """Learn that something of it failed, though the closing statement did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchClose:
    """Close one batch: fence, checkpoint and ledger in one statement, the batch's last.

    `expected` is the checkpoint the batch started from (None: none stored yet), so the same claim cannot commit
    one batch twice. `marker` is the transaction-local setting `rowsweep.batch` the batch was begun with: it is
    gone when the handler ended the transaction. `totals=None` stores the checkpoint and leaves the ledger's figures.
    `restarts` asks to count attempts anew; one in its first attempt, or that has closed a batch in this one, need not.
    One of several jobs of a run gives its own figures as `shard`, and no totals.
    `behind` is sent along with a close that moves the stored checkpoint (`is_plain`): such a one that may not commit
    fails its transaction, so that nothing behind it can take effect.
    """

    claim: Claim
    run_id: UUID
    step: str
    expected: Json
    value: Json
    totals: SweepTotals | None
    marker: str | None = None
    checksum: str | None = None
    restarts: bool = True
    shard: ShardFigures | None = None
    behind: Behind | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it only moves a checkpoint that is stored, and the ledger's figures."""
        moves = self.expected is not None and (self.totals is not None or self.shard is not None)
        return moves and not self.restarts and self.checksum is None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchClosed:
    """Answer a batch's close: the first false one says why it may not commit.

    `wanted` is None where the driver keeps no ledger row for the run. `options` are the row's, as tuned. With something
    `behind`, a close that may not commit answers neither `held` nor `expected`: its transaction cannot tell which.
    `reported` is False where a shard's figures have to wait for its next report, because another had the row.
    """

    open: bool
    held: bool
    expected: bool
    wanted: Wanted | None
    options: Any = None
    reported: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked of a run: its flag, and its options as tuned."""

    wanted: Wanted
    options: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """New options for a live run, and who asks; None leaves one as it is, the rate `none` lifts the limit."""

    rate: str | None = None
    batch_rows: int | None = None
    health: Any = None
    by: str | None = None

    def changes(self) -> dict[str, Any]:
        """Answer the options that change."""
        given = {"rate": self.rate, "batch_rows": self.batch_rows, "health": self.health}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """One row of `x_backfills`; the fields are its columns, and what is derived from the run's jobs.

    `live` says whether a job of the run is held under a lease that has not lapsed; `job_state`, `attempt`,
    `retry_at` and `max_attempts` are those of its first job (None once it was removed). `quiet_seconds` is how long ago
    the row was last written, by the database's clock.
    """

    run_id: UUID
    name: str
    kind: SweepKind
    checksum: str
    app_version: str | None
    environment: str
    status: BackfillStatus
    wanted: Wanted
    waiting_for: str | None
    rows: int
    written: int
    batches: int
    cursor: Any
    estimated_rows: int | None
    estimate_source: str | None
    active_seconds: float
    samples: Any
    shards: Any
    input: Any
    options: Any
    rejected_rows: int
    launched_by: str | None
    last_error: str | None
    last_error_code: str | None
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    live: bool
    job_id: UUID | None
    job_state: JobState | None
    attempt: int | None
    retry_at: datetime | None
    max_attempts: int | None
    quiet_seconds: float = field(default=0.0, compare=False)


class LedgerStore(Protocol):
    """Keep the ledger of sweeps: a report for people, never where a pass resumes."""

    def start(self, row: NewBackfill) -> Backfill:
        """Open the ledger row, or take up the one that is there with the new checksum and version.

        Of its options `declared_rate` is taken anew, and a `destination` where there is one: all else is the run's own.
        """

    def progress(self, close: BatchClose) -> BatchClosed:
        """Fence on the live claim, lock the job row, store the checkpoint and move the ledger, in that order.

        Nothing is written where the answer has a false part. A sweep that advances starts counting attempts again.
        """

    def describe(
        self,
        claim: Claim,
        run_id: UUID,
        *,
        estimate: tuple[int | None, str | None] | None,
        waiting_for: str | None,
        governed: Mapping[str, Any] | None = None,
    ) -> bool:
        """Note the estimate (where given) and what the pass waits for, under the claim.

        `governed` goes into the row's options under `governor`: the seconds in its `held` and `slowed` are added to
        those there, by name; its `signals` replace them.
        """

    def finish(self, claim: Claim, run_id: UUID, totals: SweepTotals, *, late: Mapping[str, Any] | None = None) -> bool:
        """Set `done` with the exact totals, under the claim; done again it changes nothing.

        `late` goes into the row's options: what is to be said of rows that were committed behind the sweep.
        """

    def get(self, run_id: UUID) -> Backfill | None:
        """Answer one row."""

    def list(
        self,
        *,
        name: str | None = None,
        status: BackfillStatus | None = None,
        kind: SweepKind | None = None,
        run_id_prefix: str | None = None,
        run_ids: Sequence[UUID] | None = None,
        limit: int = 100,
    ) -> list[Backfill]:
        """Answer rows, newest first; with `run_ids` those of them that there are, in one statement."""

    def steer(
        self, run_id: UUID, wanted: Wanted | Tuning, *, reason: str | None = None, by: str | None = None
    ) -> Backfill:
        """Pause, resume, cancel or tune a run in one transaction, from any process; twice is once.

        A pause keeps who asked, when and why in the row's options, under `paused`, until the next one.
        Raises SweepNotFound, SweepNotLive, NotCancellable.
        """

    def wanted(self, run_ids: Sequence[UUID]) -> Mapping[UUID, Asked]:
        """Answer what is asked of each run, in one statement."""
