"""Pausing, resuming and cancelling a run: its jobs and its ledger row in one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rowsweep.errors import NotCancellable, SweepNotFound, SweepNotLive
from rowsweep.jobs.values.json_form import json_text
from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.postgres.stores.keys import refuse_taken_key, refusing_a_key_taken_meanwhile
from rowsweep.queue.records import LIVE_STATES
from rowsweep.queue.stores.ledger import Tuning

if TYPE_CHECKING:
    from uuid import UUID

    from rowsweep.queue.postgres.statements.session import Session
    from rowsweep.queue.stores.ledger import Wanted

_SQL = load("rowsweep.queue.postgres.stores.ledger.store")
_OPEN = ("running", "paused")


@dataclass(frozen=True, slots=True)
class _Run:
    """What the locked rows say: the ledger's name, status and wish, and the jobs' states and keys."""

    run_id: UUID
    name: str
    status: str
    wanted: str
    unfinished: list[tuple[UUID, str, str | None, str]]
    is_held: bool


def steer_run(session: Session, run_id: UUID, wanted: Wanted | Tuning, reason: str | None, by: str | None) -> None:
    """Do one verb to a run; raises SweepNotFound, SweepNotLive, NotCancellable, DuplicateJob."""
    if isinstance(wanted, Tuning):
        _tune(session, run_id, wanted)
        return
    run = _lock(session, run_id)
    if wanted == "pause":
        _pause(session, run, reason, by)
    elif wanted == "run":
        _resume(session, run)
    else:
        _cancel(session, run, reason)


def _lock(session: Session, run_id: UUID) -> _Run:
    """Lock job rows, then the ledger row, and read them as they are once nobody else holds them."""
    jobs = session.rows(_SQL["lock_jobs"], {"run_id": run_id})
    name, status, wanted = _lock_row(session, run_id)
    unfinished = [(job[0], *job[3:]) for job in jobs if job[1] in ("failed", "dead", "cancelled")]
    is_held = any(job[1] in LIVE_STATES and job[2] for job in jobs)
    return _Run(run_id, name, status, wanted, unfinished, is_held)


def _lock_row(session: Session, run_id: UUID) -> tuple[str, str, str]:
    rows = session.rows(_SQL["lock_row"], {"run_id": run_id})
    if not rows:
        raise SweepNotFound(
            f"no run {run_id} is in the ledger.", fix="rowsweep sweeps ls", meta={"run_id": str(run_id)}
        )
    name, status, wanted = rows[0]
    return name, status, wanted


def _tune(session: Session, run_id: UUID, tuning: Tuning) -> None:
    """Store new options; no job is touched, so that none is waited for."""
    values = {"run_id": run_id, "changes": json_text(tuning.changes()), "by": tuning.by}
    if not session.rows(_SQL["tune"], values):
        name, status, _ = _lock_row(session, run_id)
        raise _not_live(run_id, name, status, "tuned")


def _pause(session: Session, run: _Run, reason: str | None, by: str | None) -> None:
    """Ask for a pause; a run that nobody works is parked here and now."""
    if run.status not in _OPEN:
        raise _not_live(run.run_id, run.name, run.status, "paused")
    if run.wanted != "pause":
        session.rows(_SQL["say_why"], {"run_id": run.run_id, "reason": reason, "by": by})
    if run.is_held:
        session.rows(_SQL["ask"], {"run_id": run.run_id, "wanted": "pause"})
    elif run.status != "paused":
        session.rows(_SQL["park"], {"run_id": run.run_id})


def _resume(session: Session, run: _Run) -> None:
    """Make a paused run due now, or take a failed or cancelled one up again from its checkpoint."""
    if run.status in _OPEN:
        session.rows(_SQL["unpark"], {"run_id": run.run_id, "was_paused": run.status == "paused"})
        return
    if run.status == "done" or not run.unfinished:
        raise _not_live(run.run_id, run.name, run.status, "resumed")
    for job_id, name, tenant_id, key in run.unfinished:
        refuse_taken_key(session, job_id, (name, tenant_id, key))
    with refusing_a_key_taken_meanwhile(run.name):
        session.rows(_SQL["reopen"], {"run_id": run.run_id})


def _cancel(session: Session, run: _Run, reason: str | None) -> None:
    if run.status == "cancelled":
        return
    if run.status not in _OPEN:
        raise NotCancellable(
            f"run {run.run_id} of {run.name!r} is {run.status}.",
            fix="rowsweep jobs ls --json",
            meta={"run_id": str(run.run_id), "status": run.status},
        )
    session.rows(_SQL["cancel"], {"run_id": run.run_id, "reason": reason})


def _not_live(run_id: UUID, name: str, status: str, verb: str) -> SweepNotLive:
    return SweepNotLive(
        f"run {run_id} of {name!r} is {status} and cannot be {verb}.",
        fix="rowsweep sweeps ls",
        meta={"run_id": str(run_id), "status": status},
    )
