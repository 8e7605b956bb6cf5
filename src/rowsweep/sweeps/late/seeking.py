"""Pages of a few rows among many: each is sought by the rows that match, and ends behind the last of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import sql

from rowsweep.sweeps.batch.pages import PageFinder
from rowsweep.sweeps.keyset.statements import Statements

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rowsweep.sweeps.batch.connection import BatchConnection


class SeekingStatements(Statements):
    """The statements of a sweep whose next page is found among the rows that match."""

    __slots__ = ()

    def _ahead(self, *, started: bool) -> sql.Composable:
        return sql.SQL("{} and {}").format(super()._ahead(started=started), self._matches())


def seeking(
    held: BatchConnection, statements: Statements, params: Mapping[str, Any], upper: Sequence[str] | None
) -> PageFinder:
    """Answer what finds such pages, one by one; for rows that one statement counts in a moment, wherever they are."""
    sought = SeekingStatements(
        table=statements.table,
        where=statements.where,
        bound_params=statements.bound_params,
        bounded=statements.bounded,
        also=statements.also,
    )
    return PageFinder(held, sought, params, upper, most_ahead=0)
