"""A run over the rows that another one set aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rowsweep.sweeps.batch.pages import PageFinder
from rowsweep.sweeps.poison.listed import ListedFinder, listed
from rowsweep.sweeps.refusals import refuse_changed

if TYPE_CHECKING:
    from rowsweep.queue.stores.rejected import RejectedRow
    from rowsweep.sweeps.batch.connection import BatchConnection
    from rowsweep.sweeps.keyset.statements import Statements
    from rowsweep.sweeps.setup import Setup


def over_listed(setup: Setup, rows: Sequence[RejectedRow], *, sweep: str) -> Setup:
    """Answer the setup of a run over these rows alone.

    Raises ChangedSinceApplied where they are of another table, or were named by another key.
    """
    table = setup.table
    now = {"table": table.qualified, "key": sorted(table.key)}
    for row in rows:
        refuse_changed(repr(sweep), began={"table": row.table, "key": sorted(row.key)}, now=now, meta={"sweep": sweep})
    keys = tuple(tuple(row.key[name] for name in table.key) for row in rows)
    return replace(setup, only=keys, upper=None, estimate=len(keys), estimate_source="count")


def finder_over(held: BatchConnection, setup: Setup, statements: Statements) -> PageFinder:
    """Answer what finds the pages of a run: those of its table, or of the rows it is over alone."""
    params = setup.params or {}
    if setup.only is None:
        return PageFinder(held, statements, params, setup.upper)
    return ListedFinder(held, listed(statements), params, setup.only)
