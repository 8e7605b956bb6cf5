"""The rows that runs set aside, in memory."""

from __future__ import annotations

import builtins
from dataclasses import replace
from typing import TYPE_CHECKING

from rowsweep.errors import InvariantBroken
from rowsweep.queue.memory.state import locked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.stores.rejected import RejectedRow


class MemoryRejected:
    """Keep the rows by run, their number in the ledger's row."""

    def __init__(self, state: State) -> None:
        self._state = state

    @locked
    def add(self, run_id: UUID, rows: Sequence[RejectedRow]) -> int:
        """List the rows and answer how many are listed now."""
        state, now = self._state, self._state.now()
        if run_id not in state.ledger:
            raise InvariantBroken(
                f"run {run_id} has no ledger row to list rejected rows in.",
                fix="open the row before",
                meta={"run_id": str(run_id)},
            )
        new = [replace(row, key=dict(row.key), at=now) for row in rows]
        again = [_place(row) for row in new]
        kept = [row for row in state.rejected.get(run_id, ()) if _place(row) not in again]
        self._put(run_id, (*kept, *new))
        state.ledger[run_id] = replace(state.ledger[run_id], updated_at=now)
        return len(kept) + len(new)

    @locked
    def list(self, run_id: UUID) -> builtins.list[RejectedRow]:
        """Answer the rows as they were set aside."""
        return [replace(row, key=dict(row.key)) for row in self._state.rejected.get(run_id, ())]

    @locked
    def release(self, run_id: UUID, table: str, keys: Sequence[Mapping[str, str]]) -> None:
        """Take keys off the lists of the sweep's other runs with the same input."""
        state = self._state
        own, gone = state.ledger.get(run_id), [(table, dict(key)) for key in keys]
        for other, rows in list(state.rejected.items()):
            row = state.ledger.get(other)
            is_same = own is not None and row is not None and (row.name, row.input) == (own.name, own.input)
            if is_same and other != run_id:
                self._put(other, tuple(kept for kept in rows if _place(kept) not in gone))

    def _put(self, run_id: UUID, rows: tuple[RejectedRow, ...]) -> None:
        self._state.rejected[run_id] = rows
        self._state.ledger[run_id] = replace(self._state.ledger[run_id], rejected_rows=len(rows))


def _place(row: RejectedRow) -> tuple[str, dict[str, str]]:
    return row.table, dict(row.key)
