"""Durable steps: what is kept of one, and the store that keeps them under the claim."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from rowsweep.jobs.values.json_form import Json
    from rowsweep.queue.records import Claim
    from rowsweep.queue.stores.events import StepWait

StepKind = Literal["run", "sleep", "event", "checkpoint", "part"]
StepStatus = Literal["done", "failed", "waiting", "timed-out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One row of `x_job_steps`."""

    run_id: UUID
    name: str
    kind: StepKind
    status: StepStatus
    output: Any
    attempts: int
    error: str | None
    started_at: datetime
    completed_at: datetime | None
    wake_at: datetime | None = None
    event: str | None = None
    correlation_key: str | None = None


class Recorded(NamedTuple):
    """What a replay needs of a step that is stored; its output is read when it is asked for."""

    kind: StepKind
    status: StepStatus
    text: str | None

    @property
    def output(self) -> Any:
        """Answer the output, fresh for each reader."""
        return None if self.text is None else json.loads(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPut:
    """Write one step under a claim: the row appears, or is replaced in place.

    A `failed` put adds one to `attempts`; the other statuses leave what is counted.
    """

    run_id: UUID
    name: str
    kind: StepKind
    status: StepStatus
    output: Json = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSleep:
    """Ask under a claim whether a sleep is over; asked for the first time, it begins."""

    run_id: UUID
    name: str
    seconds: float


class StepStore(Protocol):
    """Keep a run's steps; every write is fenced on the claim."""

    def get(self, run_id: UUID, name: str) -> Step | None:
        """Answer one step."""

    def list(self, run_id: UUID, *, kinds: Sequence[str] | None = None) -> list[Step]:
        """Answer a run's steps by `started_at`, then name."""

    def recorded(self, run_id: UUID) -> dict[str, Recorded]:
        """Answer a run's steps by name, as a replay needs them, in one statement; parts of an export are left out."""

    def put(self, step: StepPut, claim: Claim) -> Step:
        """Write a step and lock the job row; LeaseLost, and nothing written, where the fence no longer fits."""

    def sleep(self, step: StepSleep, claim: Claim) -> Step:
        """Store the sleep's `wake_at`, once, and say whether that has passed: `done`, else `waiting`.

        Fenced as `put` is. The database's clock decides.
        """

    def wait(self, step: StepWait, claim: Claim) -> Step:
        """Store what the wait is for, once, and say whether it has come.

        `done` with the event's record as output, `timed-out` once its `wake_at` passed without one, else `waiting`.
        The answer is the earliest live event published at or after the first asking, or by a transaction that was
        still open then. Fenced as `put` is; the database's clock decides.
        """

    def delete(self, run_id: UUID, name: str) -> bool:
        """Remove one step; False where there was none."""

    def guard(self, claim: Claim) -> bool:
        """Lock the job row until the transaction ends and say whether it still stands under this claim."""
