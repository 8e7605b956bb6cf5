"""Whether a sweep may run here and now: environment, requirements, already applied."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from rowsweep.errors import AlreadyApplied, ChangedSinceApplied, RequirementMissing, WrongEnvironment
from rowsweep.queue.records import LIVE_STATES

if TYPE_CHECKING:
    from rowsweep.queue.stores.ledger import Backfill, LedgerStore

ENVIRONMENT_VARIABLE: Final = "ROWSWEEP_ENV"
DEFAULT_ENVIRONMENT: Final = "development"
_LOOKED_AT: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the gate is asked for: one sweep with one input; `run_id` is the run it is asked for, if it exists yet."""

    name: str
    checksum: str
    environments: Sequence[str]
    requires: Sequence[str]
    input: Any = None
    run_id: UUID | None = None
    repeats: bool = False


def environment() -> str:
    """Answer the environment this process is in."""
    return os.environ.get(ENVIRONMENT_VARIABLE) or DEFAULT_ENVIRONMENT


def retried_run(options: Mapping[str, Any] | None) -> UUID | None:
    """Answer the run whose rejected rows a run with these options tries again; None for one over the whole table."""
    given = (options or {}).get("retry_of")
    return None if given is None else UUID(given)


def done_rows(ledger: LedgerStore, name: str) -> list[Backfill]:
    """Answer the newest rows of this name that are done, without the runs that only tried rejected rows again."""
    rows = ledger.list(name=name, status="done", limit=_LOOKED_AT)
    return [row for row in rows if retried_run(row.options) is None]


def open_rows(ledger: LedgerStore, name: str) -> list[Backfill]:
    """Answer the newest rows of this name that are not ended."""
    rows = (*ledger.list(name=name, status="running"), *ledger.list(name=name, status="paused"))
    return [row for row in rows if row.job_state in LIVE_STATES]


def ask(asked: Asked, ledger: LedgerStore | None, *, force: bool = False) -> None:
    """Refuse a sweep that may not run here and now.

    Raises WrongEnvironment, RequirementMissing, AlreadyApplied, ChangedSinceApplied; `force` overrides the last two.
    """
    here = environment()
    if asked.environments and here not in asked.environments:
        raise WrongEnvironment(
            f"{asked.name!r} runs in {' or '.join(asked.environments)}; this is {here!r}.",
            fix=f"run it there; ${ENVIRONMENT_VARIABLE} names the environment of a process",
            meta={"sweep": asked.name, "environment": here, "environments": list(asked.environments)},
        )
    for required in asked.requires:
        if ledger is None or not done_rows(ledger, required):
            raise RequirementMissing(
                f"{asked.name!r} requires {required!r}, which the ledger does not list as done.",
                fix=f"rowsweep sweeps launch {required}",
                meta={"sweep": asked.name, "requires": required},
            )
    if not force and not asked.repeats:
        _refuse_applied(asked, ledger)


def applied_row(ledger: LedgerStore, asked: Asked) -> Backfill | None:
    """Answer the newest `done` row of that name and input, leaving out the run's own."""
    rows = done_rows(ledger, asked.name)
    return next((row for row in rows if row.run_id != asked.run_id and row.input == asked.input), None)


def _refuse_applied(asked: Asked, ledger: LedgerStore | None) -> None:
    row = None if ledger is None else applied_row(ledger, asked)
    if ledger is None or row is None:
        return
    when = f"{row.finished_at:%Y-%m-%d %H:%M} UTC" if row.finished_at is not None else "before"
    fix = _way_on(asked, row, ledger)
    meta = {"sweep": asked.name, "run_id": str(row.run_id), "applied": row.checksum, "declared": asked.checksum}
    if row.checksum == asked.checksum:
        raise AlreadyApplied(
            f"{asked.name!r} was applied here at {when} (run {row.run_id}, {row.rows:,} rows).", fix=fix, meta=meta
        )
    raise ChangedSinceApplied(
        f"{asked.name!r} was applied here at {when} (run {row.run_id}), and its declaration has changed since.",
        fix=fix,
        meta=meta,
    )


def _way_on(asked: Asked, row: Backfill, ledger: LedgerStore) -> str:
    """Answer what to do about a sweep that is applied: its rejected rows come first, where these are not under way."""
    again = f"launch(force=True) or `rowsweep run {asked.name} --force` runs it again"
    if not row.rejected_rows:
        return f"rowsweep ledger --name {asked.name}; {again}"
    retry = next((each for each in open_rows(ledger, asked.name) if retried_run(each.options) == row.run_id), None)
    if retry is None:
        rows = f"the {row.rejected_rows:,} rows" if row.rejected_rows > 1 else "the row"
        return (
            f"rowsweep sweeps retry-rejected {row.run_id} does {rows} that it set aside; {again}, over the whole table"
        )
    way = (
        "rowsweep sweeps resume" if retry.status == "paused" else "a worker does them (rowsweep worker): rowsweep watch"
    )
    return f"run {retry.run_id} tries the rows again that it set aside; {way} {retry.run_id}"
