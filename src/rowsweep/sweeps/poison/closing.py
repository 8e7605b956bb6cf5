"""Close a batch that set rows aside: they are listed in its transaction, behind its fence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rowsweep.errors import InvariantBroken
from rowsweep.queue.stores.rejected import RejectedRow
from rowsweep.sweeps.batch.closing import Checkpoint, Closer
from rowsweep.sweeps.poison.blame import row_error
from rowsweep.telemetry.events import emit
from rowsweep.telemetry.instruments import record_rejected

if TYPE_CHECKING:
    from rowsweep.queue.contract import Stores
    from rowsweep.queue.stores.ledger import BatchClosed
    from rowsweep.queue.stores.rejected import RejectedStore
    from rowsweep.sweeps.keyset.catalog import Table
    from rowsweep.sweeps.passes.position import Position
    from rowsweep.sweeps.poison.limits import Limits
    from rowsweep.sweeps.poison.listed import Key, ListedFinder


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Where rows that are set aside go: the table they are of, and how many there may be.

    `retried` finds the rows of a run that tries rejected ones again: those that are done leave all lists.
    """

    table: Table
    limits: Limits
    retried: ListedFinder | None = None

    def row(self, key: Key, error: BaseException) -> RejectedRow:
        """Make the entry of a row that failed by itself."""
        names = dict(zip(self.table.key, key, strict=True))
        return RejectedRow(table=self.table.qualified, key=names, error=row_error(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingCloser(Closer):
    """Close batches as others are closed; what was set aside is listed right behind the closing statement."""

    listing: Listing

    @property
    def chains(self) -> bool:
        """Not in a run over rejected rows: lists are kept behind the closing statement, in its transaction."""
        return self.listing.retried is None and self.held.chains

    def close(self, before: Checkpoint, after: Checkpoint, marker: str, *, stored: bool) -> BatchClosed:
        """Store `after` where `before` was stored; a page of rejected rows that are tried again leaves the lists."""
        return self.close_with((), before, after, marker, stored=stored)

    def close_with(
        self, rejected: Sequence[RejectedRow], before: Checkpoint, after: Checkpoint, marker: str, *, stored: bool
    ) -> BatchClosed:
        """Do so, and list the rows that the page set aside. Raises TooManyRejected."""
        closed = Closer.close(self, before, after, marker, stored=stored)
        store = rejected_of(self.held.stores)
        if rejected:
            listed = store.add(self.ctx.run_id, rejected)
            if listed > self.listing.limits.most:
                raise self.listing.limits.exceeded(said(rejected[-1]))
        self._release(store, rejected, before, after)
        return closed

    def _release(self, store: RejectedStore, rejected: Sequence[RejectedRow], before: Any, after: Any) -> None:
        retried, table = self.listing.retried, self.listing.table
        if retried is None or after.cursor in (None, before.cursor):
            return
        again = [row.key for row in rejected]
        keys = [dict(zip(table.key, key, strict=True)) for key in retried.between(before.cursor, after.cursor)]
        store.release(self.ctx.run_id, table.qualified, [key for key in keys if key not in again])

    def tell(self, at: Position, after: Position, rejected: Sequence[RejectedRow]) -> None:
        """Count and log what a committed batch did and set aside."""
        self.listing.limits.done(rows=after.rows - at.rows, rejected=len(rejected))
        if rejected:
            record_rejected(self.listing.limits.sweep, rows=len(rejected))
        for row in rejected:
            emit(
                "sweeps.row.set-aside",
                error=row.error,
                sweep=self.listing.limits.sweep,
                run_id=str(self.ctx.run_id),
                key=shown(row),
            )


def rejected_of(stores: Stores) -> RejectedStore:
    """Answer the store of rejected rows; InvariantBroken on a driver without one."""
    if stores.rejected is None:
        raise InvariantBroken("The driver keeps no rejected rows.", fix="use PostgresDriver for sweeps")
    return stores.rejected


def shown(row: RejectedRow) -> str:
    """Say which row it is."""
    return ", ".join(f"{name}={text}" for name, text in row.key.items())


def said(row: RejectedRow) -> str:
    """Say which row it is and why it was set aside."""
    return f"{shown(row)}: {row.error}"
