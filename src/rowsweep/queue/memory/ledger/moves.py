"""How a ledger row moves along with its run's jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from rowsweep.jobs.attempts.failure import Failure
from rowsweep.queue.memory import jsonb
from rowsweep.queue.stores.shards import shard_number

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.records import Job
    from rowsweep.queue.stores.ledger import Backfill
    from rowsweep.queue.stores.shards import ShardStatus

OPEN_STATUSES: Final = ("running", "paused")
Ended = Literal["failed", "cancelled"]


def open_backfill(state: State, job: Job) -> Backfill | None:
    """Answer the row of a job's run where it has one that has not ended."""
    row = state.ledger.get(job.run_id)
    return row if row is not None and row.status in OPEN_STATUSES else None


def end_backfill(state: State, job: Job, status: Ended, now: datetime) -> None:
    """End the row with its job; the job's error, where it has one, is the row's."""
    row = open_backfill(state, job)
    if row is not None:
        error = None if job.last_error is None else Failure(text=job.last_error, code=job.last_error_code)
        ended = ended_row(row, status, error, now)
        if status == "failed" and ended.shards is not None:
            ended = replace(with_status(ended, shard_number(job.concurrency_key), "failed"), wanted="cancel")
        state.ledger[row.run_id] = ended


def with_status(row: Backfill, number: int, status: ShardStatus) -> Backfill:
    """Answer the row with one shard's status set."""
    shards: list[dict[str, Any]] = jsonb.read(row.shards) or []
    told = [{**shard, "status": status} if at == number else shard for at, shard in enumerate(shards, 1)]
    return replace(row, shards=jsonb.bind(told))


def ended_row(row: Backfill, status: Ended, error: Failure | None, now: datetime) -> Backfill:
    """Answer the row as it ends; without an error the last one stays."""
    return replace(
        row,
        status=status,
        wanted="cancel" if status == "cancelled" else row.wanted,
        waiting_for=None,
        last_error=row.last_error if error is None else error.text,
        last_error_code=row.last_error_code if error is None else error.code,
        updated_at=now,
        finished_at=now,
    )


def note_error(state: State, job: Job, error: Failure, now: datetime) -> None:
    """Show a failed attempt's error on the row, which goes on."""
    row = open_backfill(state, job)
    if row is not None:
        noted = replace(row, last_error=error.text, last_error_code=error.code)
        state.ledger[row.run_id] = replace(noted, waiting_for=None, updated_at=now)


def governed_options(options: Any, governed: Mapping[str, Any]) -> dict[str, Any]:
    """Add what a pass's governor did to a row's options: seconds by name add up, signals are replaced."""
    known = (options or {}).get("governor", {})
    told: dict[str, Any] = {"signals": governed.get("signals", known.get("signals", {}))}
    for how in ("held", "slowed"):
        former, more = known.get(how, {}), governed.get(how, {})
        told[how] = {name: round(former.get(name, 0) + more.get(name, 0), 6) for name in {**former, **more}}
    return {**(options or {}), "governor": told}


def is_pause_wanted(state: State, job: Job) -> bool:
    """Say whether the run's row still wants the pause its pass has parked for."""
    row = state.ledger.get(job.run_id)
    return row is not None and row.wanted == "pause"


def pause_backfill(state: State, job: Job, now: datetime) -> None:
    """Set the row `paused`."""
    row = open_backfill(state, job)
    if row is not None:
        state.ledger[row.run_id] = replace(row, status="paused", waiting_for=None, updated_at=now)


def reopen_backfill(state: State, job: Job, now: datetime) -> None:
    """Set the row of a requeued job `running` again."""
    row = state.ledger.get(job.run_id)
    if row is not None:
        cleared = replace(row, last_error=None, last_error_code=None, waiting_for=None, finished_at=None)
        state.ledger[row.run_id] = replace(cleared, status="running", wanted="run", updated_at=now)
