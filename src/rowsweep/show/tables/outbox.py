"""Make a table, or a plain document, of staged jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from rowsweep.show.tables.table import Cell, Column, Table
from rowsweep.show.words import values

if TYPE_CHECKING:
    from rowsweep.queue.stores.outbox import StagedJob

_TO_THE_MINUTE: Final = 16


def outbox_table(rows: Sequence[StagedJob]) -> Table:
    """Answer staged jobs, one a line, in the order they came."""
    columns = (
        Column(title="id"),
        Column(title="job", is_long=True),
        Column(title="state"),
        Column(title="attempts", is_number=True),
        Column(title="staged (UTC)", prefix=_TO_THE_MINUTE, rank=1),
        Column(title="error", is_long=True, rank=2),
    )
    cells = tuple(
        (
            Cell(text=str(row.job.id), tone="dim"),
            Cell(text=row.job.name),
            Cell(text=row.status),
            Cell(text=values.number(row.attempts)),
            Cell(text=values.instant(row.created_at)),
            Cell(text=(row.last_error or "").partition("\n")[0]),
        )
        for row in rows
    )
    return Table(columns=columns, rows=cells, empty="Nothing is staged.")


def as_document(row: StagedJob) -> dict[str, Any]:
    """Answer one staged job as plain data."""
    kept = asdict(row)
    return {**kept.pop("job"), **kept, "status": row.status}
