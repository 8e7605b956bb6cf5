"""The rows that a run set aside: what is kept of each, and the store that keeps them."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRow:
    """A row that failed by itself: its table, its key as the database's own text of each column, and the error.

    The store stamps `at`.
    """

    table: str
    key: Mapping[str, str]
    error: str
    at: datetime | None = None


class RejectedStore(Protocol):
    """Keep the rows that a run set aside, in its ledger row."""

    def add(self, run_id: UUID, rows: Sequence[RejectedRow]) -> int:
        """List the rows and answer how many are listed now; one that is listed already takes the new error.

        It is called behind the closing statement, in its transaction: there the claim is fenced.
        """

    def list(self, run_id: UUID) -> builtins.list[RejectedRow]:
        """Answer the rows as they were set aside, the first one first."""

    def release(self, run_id: UUID, table: str, keys: Sequence[Mapping[str, str]]) -> None:
        """Take keys off the lists of all other runs of this run's sweep with the same input.

        It is called behind the closing statement, in its transaction.
        """
