"""The registry of workers in memory, and an idle worker's look."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rowsweep.queue.memory.claim import is_due, is_lapsed
from rowsweep.queue.memory.events.store import poll as poll_events
from rowsweep.queue.memory.state import WorkerRow, locked
from rowsweep.queue.records import WAITING_STATES
from rowsweep.queue.stores.workers import SAMPLE_SECONDS, Look
from rowsweep.telemetry.instruments import Depth

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.stores.workers import WorkerInfo

EXPIRES_SECONDS: Final = 30.0


class MemoryWorkers:
    """Keep announced workers until they leave or their rows expire."""

    def __init__(self, state: State) -> None:
        self._state = state

    @locked
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
        """Say which queues have something to claim; claims nothing."""
        poll_events(self._state, poll)
        state, now = self._state, self._state.now()
        if proof is not None:
            state.say(proof)
        if announce is not None:
            expires_at = now + timedelta(seconds=EXPIRES_SECONDS)
            state.workers[announce.id] = WorkerRow(announce, seen_at=now, expires_at=expires_at)
        waiting = (job for job in state.live_jobs() if job.queue in queues and job.name in names)
        mine = [job for job in waiting if not state.is_paused(job)]
        due = {job.queue for job in mine if is_due(job, now) or is_lapsed(job, now)}
        later = [job.run_at for job in mine if job.state in WAITING_STATES and job.run_at > now]
        later += [job.visible_at for job in mine if job.visible_at is not None and job.visible_at >= now]
        next_run_at = min(later, default=None)
        return Look(
            due_queues=sorted(due),
            next_run_in_seconds=None if next_run_at is None else (next_run_at - now).total_seconds(),
            depths=self._sampled(announce) if sample and announce is not None else None,
        )

    def _sampled(self, worker: WorkerInfo) -> list[Depth] | None:
        """Count every queue, where the last sample is old enough."""
        state, now = self._state, self._state.now()
        if state.sampled_at is not None and (now - state.sampled_at).total_seconds() < SAMPLE_SECONDS:
            return None
        state.sampled_at = now
        return [depth_of(state, queue, now) for queue in sorted({*queues_with_rows(state), *worker.queues})]

    @locked
    def leave(self, worker_id: str) -> None:
        """Take a worker's row away."""
        self._state.workers.pop(worker_id, None)

    @locked
    def live(self) -> list[tuple[WorkerInfo, datetime]]:
        """Answer the workers whose rows have not expired, each with when it was last seen."""
        now = self._state.now()
        rows = sorted(self._state.workers.values(), key=lambda row: row.info.id)
        return [(row.info, row.seen_at) for row in rows if row.expires_at > now]


def queues_with_rows(state: State) -> set[str]:
    """Answer the queues with waiting or dead rows."""
    return {job.queue for job in state.jobs.values() if job.state in (*WAITING_STATES, "dead")}


def depth_of(state: State, queue: str, now: datetime) -> Depth:
    """Count one queue's ready and dead rows."""
    mine = [job for job in state.jobs.values() if job.queue == queue]
    waiting = [job for job in mine if job.state in ("ready", "delayed")]
    due = [job.run_at for job in waiting if job.run_at <= now]
    return Depth(
        queue=queue,
        ready=sum(job.state == "ready" or job.run_at <= now for job in waiting),
        dead=sum(job.state == "dead" for job in mine),
        oldest_ready_seconds=(now - min(due, default=now)).total_seconds(),
    )
