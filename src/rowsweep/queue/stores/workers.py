"""The registry of workers: what one announces of itself, what an idle one's look sees, and the store of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rowsweep.jobs.values.json_form import Json
    from rowsweep.telemetry.instruments import Depth

SAMPLE_SECONDS: Final = 15.0
MOST_COUNTED: Final = 1_000_000
MOST_SAMPLED: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What an idle worker's look saw: queues with due or lapsed rows, and when a row next falls due or may lapse.

    `depths` are a sample of every queue, each count stopping at 10,000; None where it was not this look's turn.
    """

    due_queues: list[str]
    next_run_in_seconds: float | None = None
    depths: Sequence[Depth] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """What a worker announces of itself in `x_job_workers`."""

    id: str
    host: str
    pid: int
    app_version: str | None
    queues: Sequence[str]
    names: Sequence[str]
    concurrency: Json
    state: str
    in_flight: int
    processed: int
    interrupted: int
    wake: bool


class WorkerStore(Protocol):
    """Keep the registry of workers, and an idle worker's look, which carries the announcement."""

    def look(
        self,
        *,
        queues: Sequence[str],
        names: Sequence[str],
        announce: WorkerInfo | None,
        poll: Sequence[str] = (),
        proof: str | None = None,
        sample: bool = False,
    ) -> Look:
        """Say which queues have something to claim; claims nothing, one statement. Says the word `proof` on the wake.

        With `sample` and an announcement, the first to ask after 15 s is also answered every queue's depth, as far as
        that is counted quickly.
        Runs named in `poll` that are parked on an event which has come are made due, and their queues answered: an
        event whose publication met neither the parked run nor the run on its way there.
        """

    def leave(self, worker_id: str) -> None:
        """Take a worker's row away."""

    def live(self) -> list[tuple[WorkerInfo, datetime]]:
        """Answer the workers whose rows have not expired, each with when it was last seen."""
