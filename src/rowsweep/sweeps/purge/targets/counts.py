"""The SQL by which a purge counts what it is about: a whole table, and the rows that cascading keys take along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from rowsweep.sweeps.keyset.catalog import Table, quoted
from rowsweep.sweeps.purge.targets.catalog import Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A select whose rows are counted or estimated."""

    rows: sql.Composed

    def matching(self) -> sql.Composed:
        """Select every row that counts."""
        return self.rows


def every_row(table: Table) -> Counted:
    """Select every row of the table."""
    return Counted(rows=sql.SQL("select 1 from {}").format(table.identifier))


def cascaded(table: Table, due: sql.Composable, chain: Sequence[Reference]) -> Counted:
    """Select the rows at the end of a chain of cascading keys that would go along with the due rows of a table."""
    going = due
    at: tuple[str, str] = (table.schema, table.name)
    for reference in chain:
        here = (reference.schema, reference.table)
        same = [
            sql.SQL("{} = {}").format(quoted("rs_going", referred), quoted(*here, column))
            for column, referred in zip(reference.columns, reference.referred, strict=True)
        ]
        inner = sql.SQL("select {} from {} where {}").format(
            sql.SQL(", ").join(quoted(name) for name in dict.fromkeys(reference.referred)), quoted(*at), going
        )
        going = sql.SQL("exists (select from ({}) rs_going where {})").format(inner, sql.SQL(" and ").join(same))
        at = here
    return Counted(rows=sql.SQL("select 1 from {} where {}").format(quoted(*at), going))
