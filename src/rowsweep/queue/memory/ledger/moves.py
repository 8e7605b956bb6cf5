"""How a ledger row moves along with its run's jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from rowsweep.jobs.failure import Failure

if TYPE_CHECKING:
    from datetime import datetime

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.records import Backfill, Job

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
        state.ledger[row.run_id] = ended_row(row, status, error, now)


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
