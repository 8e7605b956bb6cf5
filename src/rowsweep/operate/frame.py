"""Jobs as a polars frame, as a notebook shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowsweep.jobs.values.json_form import json_text

if TYPE_CHECKING:
    import polars as pl

    from rowsweep.operate.reading import Reading

DEFAULT_ROWS = 1_000


def jobs_frame(reading: Reading, *, limit: int = DEFAULT_ROWS, **filters: Any) -> pl.DataFrame:
    """Answer jobs as a frame, newest first: what of a row is read at a glance; input, progress, result as JSON text."""
    import polars as pl

    schema = _schema(pl)
    rows = [view.as_json() for view in reading.walk(limit=limit, **filters)]
    frame = pl.DataFrame([{column: _cell(column, row[column]) for column in schema} for row in rows], schema=schema)
    return frame.with_columns(
        pl.col(column).str.to_datetime(time_unit="us", time_zone="UTC") for column in schema if column.endswith("_at")
    )


def _cell(column: str, value: Any) -> Any:
    return json_text(value) if column in ("input", "progress", "result") and value is not None else value


def _schema(pl: Any) -> dict[str, Any]:
    text, whole = pl.String, pl.Int64
    return {
        "id": text, "name": text, "queue": text, "state": text, "attempt": whole, "max_attempts": whole,
        "run_at": text, "last_error": text, "last_error_code": text, "tenant_id": text, "priority": whole,
        "claimed_by": text, "input": text, "progress": text, "result": text, "run_id": text,
        "idempotency_key": text, "enqueued_by": text, "created_at": text, "started_at": text, "updated_at": text,
    }  # fmt: skip
