"""Hand each order to a search index, here a folder with one file a batch."""

from __future__ import annotations

import json
from pathlib import Path

import rowsweep as rs

INDEX = Path(".rowsweep/search-index")


@rs.backfill("index-orders", rows=rs.Rows("orders", columns=["id", "customer", "price"]), atomic=False)
def index_orders(batch: rs.Batch) -> None:
    """Write the page outside of the database: at-least-once, so a repeated batch must replace what it wrote.

    `batch.key` is the same each time a batch is repeated. A real index would be handed it as an idempotency key.
    """
    INDEX.mkdir(parents=True, exist_ok=True)
    file = INDEX / f"{batch.key.replace(':', '-')}.jsonl"
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text("".join(f"{json.dumps(row, default=str)}\n" for row in batch.rows), encoding="utf-8")
    unfinished.replace(file)
