"""The ledger of sweeps on Postgres."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.errors import DivisionByZero

from rowsweep.errors import InvariantBroken
from rowsweep.jobs.values.json_form import json_text
from rowsweep.options import row_count
from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.postgres.stores import records
from rowsweep.queue.postgres.stores.jobs import claim_values
from rowsweep.queue.postgres.stores.ledger.steer import steer_run
from rowsweep.queue.stores.ledger import Asked, BatchClosed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from rowsweep.queue.postgres.statements.session import Session
    from rowsweep.queue.records import Claim
    from rowsweep.queue.stores.ledger import (
        Backfill,
        BackfillStatus,
        BatchClose,
        Behind,
        NewBackfill,
        SweepKind,
        SweepTotals,
        Tuning,
        Wanted,
    )

_SQL = load(__name__)


class PostgresLedger:
    """Keep one row a run in `x_backfills`; what is derived from its jobs is joined when it is read."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def start(self, row: NewBackfill) -> Backfill:
        """Open the row, or take up the one that is there with the new checksum and version.

        Its options are kept, but for the rate that is declared now.
        """
        self._session.rows(
            _SQL["start"],
            {
                "run_id": row.run_id,
                "name": row.name,
                "kind": row.kind,
                "checksum": row.checksum,
                "app_version": row.app_version,
                "environment": row.environment,
                "input": _text(row.input),
                "options": _text(row.options),
                "launched_by": row.launched_by,
            },
        )
        return self._there(row.run_id)

    def progress(self, close: BatchClose) -> BatchClosed:
        """Fence, checkpoint and ledger in one statement, or nothing."""
        values = {
            **claim_values(close.claim),
            "run_id": close.run_id,
            "step": close.step,
            "expected": _text(close.expected),
            "value": json_text(close.value),
            "marker": close.marker,
            "checksum": close.checksum,
            "moves": close.totals is not None,
            **_figures(close.totals),
        }
        if close.behind is not None:
            return self._move_on(values, close.behind)
        name = "move" if close.is_plain and close.marker is not None else "progress"
        is_open, held, expected, wanted, options = self._session.rows(_SQL[name], values)[0]
        return BatchClosed(open=is_open, held=held, expected=expected, wanted=wanted, options=options)

    def _move_on(self, values: Mapping[str, object], behind: Behind) -> BatchClosed:
        try:
            wanted, options, _ = self._session.rows_before(_SQL["move_on"], values, behind)[0]
        except DivisionByZero:
            return BatchClosed(open=True, held=False, expected=False, wanted=None)
        return BatchClosed(open=True, held=True, expected=True, wanted=wanted, options=options)

    def describe(
        self,
        claim: Claim,
        run_id: UUID,
        *,
        estimate: tuple[int | None, str | None] | None,
        waiting_for: str | None,
        governed: Mapping[str, Any] | None = None,
    ) -> bool:
        """Note the estimate, what the pass waits for and what its governor did, under the claim."""
        amount, source = estimate or (None, None)
        values = {
            **claim_values(claim),
            "run_id": run_id,
            "has_estimate": estimate is not None,
            "estimated_rows": amount,
            "estimate_source": source,
            "waiting_for": waiting_for,
            "governed": None if governed is None else json_text(dict(governed)),
        }
        return bool(self._session.rows(_SQL["describe"], values))

    def finish(self, claim: Claim, run_id: UUID, totals: SweepTotals, *, late: Mapping[str, Any] | None = None) -> bool:
        """Set `done` with the exact totals, under the claim."""
        noted = None if late is None else json_text({"late": dict(late)})
        values = {**claim_values(claim), "run_id": run_id, "noted": noted, **_figures(totals)}
        return bool(self._session.rows(_SQL["finish"], values))

    def get(self, run_id: UUID) -> Backfill | None:
        """Answer one row."""
        rows = self._session.rows(_SQL["get"], {"run_id": run_id})
        return records.backfill(rows[0]) if rows else None

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
        if row_count(limit) == 0:
            return []
        values = {
            "name": name,
            "status": status,
            "kind": kind,
            "run_id_prefix": run_id_prefix,
            "run_ids": None if run_ids is None else list(run_ids),
            "limit": limit,
        }
        return [records.backfill(row) for row in self._session.rows(_SQL["list"], values)]

    def steer(
        self, run_id: UUID, wanted: Wanted | Tuning, *, reason: str | None = None, by: str | None = None
    ) -> Backfill:
        """Pause, resume, cancel or tune a run in one transaction."""
        with self._session.unit() as session:
            steer_run(session, run_id, wanted, reason, by)
            return PostgresLedger(session)._there(run_id)

    def wanted(self, run_ids: Sequence[UUID]) -> Mapping[UUID, Asked]:
        """Answer what is asked of each run that has a row."""
        if not run_ids:
            return {}
        rows = self._session.rows(_SQL["wanted"], {"run_ids": list(run_ids)})
        return {run_id: Asked(wanted=wanted, options=options) for run_id, wanted, options in rows}

    def _there(self, run_id: UUID) -> Backfill:
        row = self.get(run_id)
        if row is None:
            raise InvariantBroken(
                f"the ledger row of run {run_id} was written and is gone.",
                fix="nothing but rowsweep's own purge may delete rows of x_backfills",
                meta={"run_id": str(run_id)},
            )
        return row


def _figures(totals: SweepTotals | None) -> dict[str, Any]:
    if totals is None:
        return dict.fromkeys(("rows", "written", "batches", "cursor", "active_seconds", "samples"))
    return {
        "rows": totals.rows,
        "written": totals.written,
        "batches": totals.batches,
        "cursor": _text(totals.cursor),
        "active_seconds": float(totals.active_seconds),
        "samples": _text(totals.samples),
    }


def _text(value: Any) -> str | None:
    return None if value is None else json_text(value)
