"""Sort each order into a price band."""

from __future__ import annotations

import polars as pl

import rowsweep as rs


@rs.backfill("order-bands", rows=rs.Rows("orders", columns=["id", "price"]), batch_rows=5_000)
def order_bands(batch: rs.Batch) -> pl.DataFrame:
    """Answer the key and the changed column; they are written back in bulk, in the batch's transaction."""
    price = pl.col("price")
    band = pl.when(price < 10).then(pl.lit("low")).when(price < 100).then(pl.lit("mid")).otherwise(pl.lit("high"))
    return batch.frame.select("id", band=band)
