"""The registry of workers on Postgres, and an idle worker's look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rowsweep.jobs.values.json_form import json_text
from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.postgres.stores import records
from rowsweep.queue.stores.workers import MOST_SAMPLED, SAMPLE_SECONDS, Look
from rowsweep.telemetry.instruments import Depth

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rowsweep.queue.postgres.statements.session import Session
    from rowsweep.queue.stores.workers import WorkerInfo

EXPIRES_SECONDS: Final = 30.0
_SQL = load(__name__)


class PostgresWorkers:
    """Keep announced workers in `x_job_workers` until they leave or their rows expire."""

    def __init__(self, session: Session) -> None:
        self._session = session

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
        """Say which queues have something to claim; claims nothing, one statement."""
        asked = {"queues": list(queues), "names": list(names), "poll": list(poll), "proof": proof}
        sampling = {"sample": sample and announce is not None, "every": SAMPLE_SECONDS, "most": MOST_SAMPLED}
        due, seconds, _, depths = self._session.rows(_SQL["look"], {**asked, **sampling, **_announced(announce)})[0]
        return Look(
            due_queues=due,
            next_run_in_seconds=seconds,
            depths=None if depths is None else [_depth(row) for row in depths],
        )

    def leave(self, worker_id: str) -> None:
        """Take a worker's row away."""
        self._session.rows(_SQL["leave"], {"id": worker_id})

    def live(self) -> list[tuple[WorkerInfo, datetime]]:
        """Answer the workers whose rows have not expired, each with when it was last seen."""
        return [records.worker(row) for row in self._session.rows(_SQL["live"], {})]


def _depth(row: list[Any]) -> Depth:
    queue, ready, dead, oldest, is_capped = row
    return Depth(queue=queue, ready=ready, dead=dead, oldest_ready_seconds=float(oldest), is_capped=is_capped)


def _announced(info: WorkerInfo | None) -> dict[str, Any]:
    """Answer the announcement's values; without an id the statement announces nobody."""
    return {
        "id": info and info.id,
        "host": info and info.host,
        "pid": info and info.pid,
        "app_version": info and info.app_version,
        "own_queues": list(info.queues) if info else [],
        "own_names": list(info.names) if info else [],
        "concurrency": info and json_text(info.concurrency),
        "state": info and info.state,
        "in_flight": info and info.in_flight,
        "processed": info and info.processed,
        "interrupted": info and info.interrupted,
        "wake": info and info.wake,
        "expires": EXPIRES_SECONDS,
    }
