"""What a purge would remove if it ran now: counted, aged, and rolled back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.rows import tuple_row

from rowsweep.sweeps.purge.targets.own import OwnTarget
from rowsweep.sweeps.purge.targets.setup import TargetSetup, set_up_target
from rowsweep.sweeps.purge.targets.target import RowTarget, Target, checked
from rowsweep.sweeps.run import host

if TYPE_CHECKING:
    import polars as pl

    from rowsweep.sweeps.batch.connection import BatchConnection
    from rowsweep.sweeps.purge.declare import Purge

_SPAN_TIMEOUT: Final = "set local statement_timeout = '2s'"


def preview(purge: Purge) -> pl.DataFrame:
    """Answer one line a target; nothing is deleted."""
    targets = checked(purge.spec.targets())
    held = purge.held_on(host(), None, purge.tenant_for(None))
    try:
        at = _now(held) if any(isinstance(target, RowTarget) for target in targets) else None
        return _frame([_line(held, target, at) for target in targets])
    finally:
        held.release()


def _line(held: BatchConnection, target: Target | RowTarget, at: datetime | None) -> dict[str, Any]:
    if isinstance(target, OwnTarget):
        return _own_line(target)
    if not isinstance(target, RowTarget) or at is None:
        return {"target": target.name}
    with held.transaction():
        setup = set_up_target(held.connection, target, at.isoformat())
        span = _span(held.connection, setup, target)
    rows, oldest, newest = (setup.expected, None, None) if span is None else span
    return {
        "target": target.name,
        "rows": rows,
        "rows_are": "exact" if span is not None or setup.expected_is == "count" else "estimate",
        "share": round(setup.share, 4),
        "oldest": oldest,
        "newest": newest,
        "cutoff": setup.cutoff,
        "walks": setup.walks,
        "cascades": _words(setup.cascades),
    }


def _own_line(target: OwnTarget) -> dict[str, Any]:
    store = host().driver.stores().retention
    seen = target.removable(store.now()) if store is not None else []
    return {
        "target": target.name,
        "rows": sum(one.rows for one in seen),
        "rows_are": "exact",
        "oldest": min((one.oldest_at for one in seen if one.oldest_at is not None), default=None),
        "newest": max((one.newest_at for one in seen if one.newest_at is not None), default=None),
    }


def _span(connection: Any, setup: TargetSetup, target: RowTarget) -> tuple[int, Any, Any] | None:
    """Count what is due with its oldest and newest; None where that takes longer than 2 s."""
    statement, values = setup.statements().span(target.tz), {"rs_cutoff": setup.cutoff}
    try:
        with connection.transaction():
            connection.execute(_SPAN_TIMEOUT)
            row: tuple[int, Any, Any] = connection.cursor(row_factory=tuple_row).execute(statement, values).fetchone()
    except psycopg.errors.QueryCanceled:
        return None
    return row


def _now(held: BatchConnection) -> datetime:
    with held.transaction():
        row = held.connection.cursor(row_factory=tuple_row).execute("select pg_catalog.clock_timestamp()").fetchone()
    found: datetime = row[0]
    return found


def _words(cascades: Mapping[str, int | None]) -> str | None:
    if not cascades:
        return None
    return ", ".join(f"{table}: {'not readable' if rows is None else f'{rows:,}'}" for table, rows in cascades.items())


def _frame(lines: list[dict[str, Any]]) -> pl.DataFrame:
    import polars as pl

    instant = pl.Datetime("us", "UTC")
    schema: dict[str, Any] = {
        "target": pl.String, "rows": pl.Int64, "rows_are": pl.String, "share": pl.Float64, "oldest": instant,
        "newest": instant, "cutoff": pl.String, "walks": pl.String, "cascades": pl.String,
    }  # fmt: skip
    return pl.DataFrame([{column: _utc(line.get(column)) for column in schema} for line in lines], schema=schema)


def _utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value
