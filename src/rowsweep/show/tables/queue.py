"""Make tables of what the queue holds: jobs, dead letters, counts, workers, names, pauses."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rowsweep.show.tables.table import Cell, Column, Table
from rowsweep.show.words import facts, values
from rowsweep.show.words.clean import one_line

if TYPE_CHECKING:
    from rowsweep.operate.views import JobView, PauseView, QueueView, UndeclaredView, WorkerView
    from rowsweep.queue.stores.counters import CounterBucket
    from rowsweep.show.words.facts import Tone

_TO_THE_MINUTE: Final = 16
_STATES: Final = ("ready", "due", "delayed", "running", "suspended", "done", "failed", "dead", "cancelled")

_ENDINGS: Final = {"completed": 0, "retried": 0, "dead": 0, "deferred": 6, "dropped": 5, "refused": 4}
"""How a run can have ended, each with the rank of its column."""


def jobs_table(jobs: Sequence[JobView], unserved: Collection[str] = ()) -> Table:
    """Answer jobs, one a line, in the order they came; `unserved` are ids that no live worker has code for."""
    columns = (
        Column(title="job", rank=1),
        Column(title="name", is_long=True),
        Column(title="queue", is_long=True, rank=4),
        Column(title="state"),
        Column(title="attempt", is_number=True, rank=3),
        Column(title="due (UTC)", prefix=_TO_THE_MINUTE, rank=5),
        Column(title="error", is_long=True, rank=2),
    )
    rows = tuple(
        (
            Cell(text=job.id, tone="dim"),
            Cell(text=job.name),
            Cell(text=job.queue),
            _state(job, is_served=job.id not in unserved),
            Cell(text=f"{job.attempt}/{job.max_attempts}"),
            Cell(text=values.instant(job.run_at)),
            Cell(text=one_line(job.last_error_code or job.last_error or "")),
        )
        for job in jobs
    )
    return Table(columns=columns, rows=rows, empty="No such job.")


def dead_table(jobs: Sequence[JobView]) -> Table:
    """Answer dead letters, one a line: when each died, and of what."""
    columns = (
        Column(title="job", rank=1),
        Column(title="name", is_long=True),
        Column(title="queue", is_long=True, rank=4),
        Column(title="died (UTC)", prefix=_TO_THE_MINUTE, rank=3),
        Column(title="attempts", is_number=True, rank=5),
        Column(title="error", is_long=True, rank=2),
    )
    rows = tuple(
        (
            Cell(text=job.id, tone="dim"),
            Cell(text=job.name),
            Cell(text=job.queue),
            Cell(text=values.instant(job.updated_at)),
            Cell(text=values.number(job.attempt)),
            Cell(text=one_line(job.last_error or job.last_error_code or ""), tone="bad"),
        )
        for job in jobs
    )
    return Table(columns=columns, rows=rows, empty="No dead letter.")


def stats_table(queues: Sequence[QueueView]) -> Table:
    """Answer each queue's counts, and how long its oldest due job has waited."""
    columns = (
        Column(title="queue", is_long=True),
        *(Column(title=state, is_number=True, rank=_rank(state)) for state in _STATES),
        Column(title="oldest due", is_number=True, rank=2),
    )
    rows = tuple(
        (
            Cell(text=queue.queue),
            *(_count(state, getattr(queue, state)) for state in _STATES),
            Cell(text="" if queue.oldest_ready_seconds is None else values.span(queue.oldest_ready_seconds)),
        )
        for queue in queues
    )
    return Table(columns=columns, rows=rows, empty="No job is in any queue.")


def workers_table(workers: Sequence[WorkerView]) -> Table:
    """Answer the live workers, one a line."""
    columns = (
        Column(title="worker", is_long=True, rank=4),
        Column(title="on"),
        Column(title="state"),
        Column(title="queues", is_long=True),
        Column(title="busy", is_number=True),
        Column(title="done", is_number=True, rank=3),
        Column(title="interrupted", is_number=True, rank=6),
        Column(title="wake", rank=5),
        Column(title="version", rank=7),
        Column(title="jobs", is_long=True, rank=2),
        Column(title="seen (UTC)", rank=8),
    )
    rows = tuple(
        (
            Cell(text=worker.id, tone="dim"),
            Cell(text=f"{worker.host}:{worker.pid}"),
            Cell(text=worker.state, tone="warn" if worker.state == "draining" else facts.tone(worker.state)),
            Cell(text=", ".join(worker.queues)),
            Cell(text=values.number(worker.in_flight)),
            Cell(text=values.number(worker.processed)),
            Cell(text=values.number(worker.interrupted)),
            Cell(text="proven", tone="good") if worker.wake else Cell(text="polls", tone="warn"),
            Cell(text=worker.app_version or ""),
            Cell(text=", ".join(worker.names)),
            Cell(text=values.instant(worker.seen_at)),
        )
        for worker in workers
    )
    return Table(columns=columns, rows=rows, empty="No worker lives. Start one: rowsweep worker")


def counters_table(buckets: Sequence[CounterBucket]) -> Table:
    """Answer how runs ended, one bucket of one job a line."""
    columns = (
        Column(title="from (UTC)", prefix=_TO_THE_MINUTE),
        Column(title="job", is_long=True),
        *(Column(title=ending, is_number=True, rank=rank) for ending, rank in _ENDINGS.items()),
        Column(title="mean", is_number=True, rank=2),
        Column(title="longest", is_number=True, rank=3),
    )
    rows = tuple(
        (
            Cell(text=values.instant(bucket.bucket_at), tone="dim"),
            Cell(text=bucket.name),
            *(_count(ending, getattr(bucket, ending)) for ending in _ENDINGS),
            Cell(text=values.milliseconds(bucket.run_ms / bucket.completed) if bucket.completed else ""),
            Cell(text=values.milliseconds(bucket.max_run_ms) if bucket.completed else ""),
        )
        for bucket in buckets
    )
    return Table(columns=columns, rows=rows, empty="No run has ended in that time.")


def pauses_table(pauses: Sequence[PauseView]) -> Table:
    """Answer what is paused, one a line; a missing queue or name is every one."""
    columns = (
        Column(title="queue", is_long=True),
        Column(title="job", is_long=True),
        Column(title="since (UTC)", prefix=_TO_THE_MINUTE),
        Column(title="by", is_long=True, rank=1),
        Column(title="reason", is_long=True),
    )
    rows = tuple(
        (
            Cell(text=pause.queue or "every queue"),
            Cell(text=pause.name or "every job"),
            Cell(text=values.instant(pause.paused_at)),
            Cell(text=pause.paused_by or ""),
            Cell(text=pause.reason or ""),
        )
        for pause in pauses
    )
    return Table(columns=columns, rows=rows, empty="Nothing is paused.")


def names_table(declared: Sequence[Mapping[str, Any]], undeclared: Sequence[UndeclaredView]) -> Table:
    """Answer the job names declared here, then those that wait in the queue and nobody declares."""
    columns = (
        Column(title="job"),
        Column(title="kind"),
        Column(title="queue", is_long=True),
        Column(title="waiting for code", is_long=True),
    )
    known = tuple(
        (Cell(text=entry["name"]), Cell(text=entry["kind"]), Cell(text=entry["queue"]), Cell(text=""))
        for entry in declared
    )
    unknown = tuple(
        (
            Cell(text=view.name),
            Cell(text="not declared", tone="warn"),
            Cell(text=view.queue),
            Cell(text=f"{values.number(view.waiting)} that nobody here and no live worker has code for", tone="warn"),
        )
        for view in undeclared
    )
    return Table(columns=columns, rows=known + unknown, empty="No job is declared here, and none waits.")


def _state(job: JobView, *, is_served: bool) -> Cell:
    if is_served:
        return Cell(text=job.state, tone=facts.tone(job.state))
    return Cell(text=f"{job.state}, no worker has it", tone="warn")


def _count(state: str, amount: int) -> Cell:
    tone: Tone = "bad" if state == "dead" and amount else "plain" if amount else "dim"
    return Cell(text=values.number(amount), tone=tone)


def _rank(state: str) -> int:
    return {"cancelled": 6, "failed": 5, "suspended": 4, "done": 3, "delayed": 3}.get(state, 0)
