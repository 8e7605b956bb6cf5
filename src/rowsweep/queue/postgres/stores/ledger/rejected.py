"""The rows that runs set aside, in the ledger on Postgres."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import TYPE_CHECKING

from rowsweep.errors import InvariantBroken
from rowsweep.jobs.values.json_form import json_text
from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.stores.rejected import RejectedRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from rowsweep.queue.postgres.statements.session import Session

_SQL = load(__name__)


class PostgresRejected:
    """Keep the rows in `x_backfills.rejected`, their number beside it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, run_id: UUID, rows: Sequence[RejectedRow]) -> int:
        """List the rows and answer how many are listed now."""
        entries = [{"table": row.table, "key": dict(row.key), "error": row.error} for row in rows]
        answer = self._session.rows(_SQL["add"], {"run_id": run_id, "rows": json_text(entries)})
        if not answer:
            raise InvariantBroken(
                f"run {run_id} has no ledger row to list rejected rows in.",
                fix="nothing but rowsweep's own purge may delete rows of x_backfills",
                meta={"run_id": str(run_id)},
            )
        return int(answer[0][0])

    def list(self, run_id: UUID) -> builtins.list[RejectedRow]:
        """Answer the rows as they were set aside."""
        rows = self._session.rows(_SQL["list"], {"run_id": run_id})
        entries = rows[0][0] if rows else []
        return [
            RejectedRow(
                table=entry["table"],
                key=entry["key"],
                error=entry["error"],
                at=datetime.fromisoformat(entry["at"]),
            )
            for entry in entries
        ]

    def release(self, run_id: UUID, table: str, keys: Sequence[Mapping[str, str]]) -> None:
        """Take keys off the lists of the sweep's other runs with the same input."""
        values = {"run_id": run_id, "table": table, "keys": json_text([dict(key) for key in keys])}
        self._session.rows(_SQL["release"], values)
