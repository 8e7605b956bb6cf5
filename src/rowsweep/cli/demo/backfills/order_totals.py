"""Fill in each order's total."""

from __future__ import annotations

import rowsweep as rs

# No `where` skips rows that are done, and `writes` counts: were a batch repeated, its rows would show it.
totals = rs.backfill(
    "order-totals",
    rows=rs.Rows("orders"),
    set={"total": "price * qty", "writes": "writes + 1"},
)
