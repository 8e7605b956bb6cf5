"""The rows that a run set aside, as a frame."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rowsweep.sweeps.poison.closing import rejected_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from rowsweep.queue.contract import Driver


def rejected_rows(driver: Driver, run_id: UUID) -> list[dict[str, Any]]:
    """Answer the rows that a run set aside, as plain values."""
    rows = rejected_of(driver.stores()).list(run_id)
    return [{"key": key_text(row.key), "error": row.error, "at": row.at} for row in rows]


def rejected_frame(driver: Driver, run_id: UUID) -> pl.DataFrame:
    """Answer them as a frame."""
    import polars as pl

    schema: dict[str, Any] = {"key": pl.String, "error": pl.String, "at": pl.Datetime("us", "UTC")}
    return pl.DataFrame(rejected_rows(driver, run_id), schema=schema)


def key_text(key: Mapping[str, str]) -> str:
    """Answer a key as one text: its column's, or the columns with their names as JSON."""
    if len(key) == 1:
        return next(iter(key.values()))
    return json.dumps(dict(key), ensure_ascii=False)
