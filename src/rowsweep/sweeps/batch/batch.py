"""What a handler is given: one page of rows, and the transaction it is in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from rowsweep.jobs.ctx import Ctx
    from rowsweep.signals import RunSignal


class PageReader(Protocol):
    """Read one page, each form at most once."""

    def dicts(self) -> list[dict[str, Any]]:
        """Answer the rows as dicts of psycopg's own values."""

    def table(self) -> pa.Table:
        """Answer the rows in their Arrow form."""

    def frame(self) -> pl.DataFrame:
        """Answer the rows as a polars frame."""


class Batch:
    """One batch of a sweep.

    `rows` are dicts, `frame` a polars frame, `arrow` an Arrow table whose schema is fixed from the catalog; each is
    read from the database when first asked for. `index` counts the run's batches from 0, a shard's where it has
    several. `key` is stable over repeats of this batch: an idempotency key for effects elsewhere. `connection` is the
    batch's psycopg connection: in an atomic sweep what is written over it commits with the checkpoint or not at all,
    and `commit()` and `rollback()` are refused (savepoints, `with batch.connection.transaction():`, are fine). `signal`
    is aborted when the batch must stop.
    """

    def __init__(self, *, place: BatchPlace, ctx: Ctx | None, input: Any, connection: Any, reader: PageReader) -> None:
        self.index = place.index
        self.key = place.key
        self.ctx = ctx
        self.input = input
        self.connection = connection
        self._reader = reader

    def __repr__(self) -> str:
        return f"<Batch {self.index} {self.key}>"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The page's rows as dicts, in key order."""
        return self._reader.dicts()

    @property
    def frame(self) -> pl.DataFrame:
        """The page as a polars frame, in key order."""
        return self._reader.frame()

    @property
    def arrow(self) -> pa.Table:
        """The page as an Arrow table, in key order."""
        return self._reader.table()

    @property
    def signal(self) -> RunSignal | None:
        """The run's signal; None in a preview."""
        return None if self.ctx is None else self.ctx.signal

    def execute(self, query: Any, params: Any = None) -> Any:
        """Execute SQL on the batch's connection and answer psycopg's cursor."""
        return self.connection.execute(query, params)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlace:
    """Where a batch is: its index in the run and the bounds of its page, `(after, to]` as key texts."""

    run_id: str
    index: int
    after: Sequence[str] | None
    to: Sequence[str]

    @property
    def key(self) -> str:
        """The stable idempotency key: the run's id and a digest of the page's bounds."""
        bounds = json.dumps([self.after and list(self.after), list(self.to)], ensure_ascii=True)
        return f"{self.run_id}:{hashlib.sha256(bounds.encode()).hexdigest()[:24]}"

    def shown(self) -> str:
        """Say which keys the batch covers, for an error."""
        after = "the beginning" if self.after is None else f"({', '.join(self.after)})"
        return f"in batch {self.index}, keys after {after} up to ({', '.join(self.to)})"
