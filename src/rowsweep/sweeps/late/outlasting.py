"""Who is open at the end of a pass that does not look again: what they wrote is not in it, and that is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowsweep.sweeps.keyset.cursor import run
from rowsweep.sweeps.late.waiting import WRITERS_STEP
from rowsweep.sweeps.late.writers import find_writers
from rowsweep.telemetry.events import emit

if TYPE_CHECKING:
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.batch.connection import BatchConnection
    from rowsweep.sweeps.keyset.catalog import Table


def count_outlasting(ctx: RunCtx, source: BatchConnection, table: Table, *, sweep: str) -> int | None:
    """Count, once for a run, who has written to the table and is open; None on a standby, which does not know."""
    known = ctx.step.checkpoint(WRITERS_STEP)
    stored = known.get()
    if isinstance(stored, dict):
        return int(stored["writers"])
    with source.transaction(reads=True):
        if run(source.connection, "select pg_catalog.pg_is_in_recovery()").fetchone() == (True,):
            return None
        writers = len(find_writers(source.connection, table).open)
    if writers:
        known.put({"writers": writers})
        fix = f"rowsweep run {sweep} once they have ended, where their rows are wanted"
        emit("sweeps.late.unseen", sweep=sweep, run_id=str(ctx.run_id), writers=writers, rows=None, fix=fix)
    return writers
