"""A table of events, old and young, and purges over it."""

from __future__ import annotations

from typing import Any

import rowsweep as rs
from rowsweep.sweeps.purge.declare import Purge
from rowsweep.sweeps.purge.targets.target import RowTarget
from tests.sweeps.field import Field

OLD = "now() - interval '100 days'"


def make_events(field: Field, old: int, young: int, *, table: str = "events", index: bool = True) -> None:
    """Make a table with so many rows of 100 days ago and so many of now."""
    field.sql(
        f"create table {table} (id bigint generated always as identity primary key, "
        "created_at timestamptz not null, kind text default 'seen')"
    )
    insert = (
        f"insert into {table} (created_at) select %s::timestamptz - i * interval '1 s' from generate_series(1, %s) i"
    )
    field.sql(insert, [field.one(f"select {OLD}"), old])
    field.sql(insert, [field.one("select now()"), young])
    if index:
        field.sql(f"create index on {table} (created_at)")


def old_events(table: str = "events", **more: Any) -> RowTarget:
    """Take what is older than 90 days."""
    return rs.older_than(table, "created_at", days=90, **more)


def declare(*wanted: Any, name: str = "retention", **more: Any) -> Purge:
    """Declare a purge of these targets, by default of the old events, that takes any share."""
    chosen = list(wanted) or [old_events()]

    def targets() -> list[Any]:
        return chosen

    return rs.purge(name, targets=targets, **({"confirm": 1.0} | more))


def left(field: Field, table: str = "events") -> int:
    """Count the rows of a table."""
    return int(field.one(f"select count(*) from {table}"))
