"""What a notebook or script calls by name, on the connected app."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rowsweep.app.connecting import current
from rowsweep.queue.bus import use_event_bus
from rowsweep.spelling import spelled
from rowsweep.sweeps.run import Run
from rowsweep.sweeps.snapshot import Snapshot

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    import polars as pl

    from rowsweep.operate.health.finding import Health
    from rowsweep.queue.postgres.install import SchemaStatus
    from rowsweep.queue.postgres.outbox.install import OutboxStatus
    from rowsweep.queue.stores.counters import CounterBucket, CounterTier
    from rowsweep.show.notebook.board import BoardView


def install() -> SchemaStatus:
    """Install the connected database's tables, or bring them up to this version."""
    return current().install()


@spelled
def install_outbox(dsn: str, schema: str | None = None) -> OutboxStatus:
    """Make the outbox alone in an application's own database, for a queue that is in another one."""
    return outbox_schema(dsn, schema, install=True)


def health() -> Health:
    """Look at everything `rowsweep doctor` looks at."""
    return current().health()


@spelled
def attach(run: str | UUID) -> Run:
    """Find a run again: by its id, a unique prefix of it, or a sweep's name (its newest run)."""
    return current().run_of(run)


@spelled
def runs(*, name: str | None = None, limit: int = 100) -> list[Snapshot]:
    """Answer snapshots of the newest runs."""
    return current().runs(name=name, limit=limit)


def board() -> BoardView:
    """Answer everything at a glance, live as the last line of a cell: sweeps, jobs, workers, schedules."""
    return current().board()


@spelled
def ledger(*, name: str | None = None, limit: int = 1_000) -> pl.DataFrame:
    """Answer the ledger of sweeps, `x_backfills`, as a polars frame, newest first."""
    import polars as pl

    schema = _ledger_schema(pl)
    instants = ("started_at", "updated_at", "finished_at")
    rows = [snapshot.as_json() for snapshot in current().runs(name=name, limit=limit)]
    frame = pl.DataFrame([{column: row[column] for column in schema} for row in rows], schema=schema)
    return frame.with_columns(pl.col(column).str.to_datetime(time_unit="us", time_zone="UTC") for column in instants)


@spelled
def counters(
    *,
    tier: CounterTier = "minute",
    name: str | None = None,
    since: str | timedelta | datetime | None = None,
    limit: int = 1_000,
) -> list[CounterBucket]:
    """Answer how runs ended by job name, newest bucket first: in minutes (kept 2 h), hours (14 d) or days (400 d).

    `since` is an aware instant, or how long ago (`"90m"`).
    """
    from rowsweep.operate.counters import read_counters

    return read_counters(current().driver, tier=tier, name=name, since=since, limit=limit)


def jobs(*, limit: int = 1_000, **filters: Any) -> pl.DataFrame:
    """Answer jobs as a polars frame, newest first: `jobs(state="dead")`, `jobs(name="mail", queue="slow")`.

    Filters are `queue`, `name`, `state`, `tenant_id`, `run_id`, `id_prefix`, `created_from` and `created_to`.
    """
    return current().jobs(limit=limit, **filters)


@spelled
def work(*, scheduler: bool = False, relay: bool = False) -> None:
    """Work what this process has declared, in this process.

    With `scheduler` fire its tasks too, where it leads; with `relay` publish what is staged in the outbox.
    """
    current().work(scheduler=scheduler, relay=relay)


@spelled
@contextmanager
def transaction(tx: Any = None) -> Iterator[Any]:
    """Open a transaction and make it ambient: enqueues inside join it. Answers its connection.

    It is one of the queue's database, or with `tx` of that connection (psycopg, SQLAlchemy or Django), opened in its
    library's own way. Nested, it is a savepoint.
    """
    with current().transaction(tx) as connection:
        yield connection


def schema_sql(schema: str | None = None, *, outbox_only: bool = False) -> str:
    """Answer the SQL that an install runs."""
    from rowsweep.queue.postgres.install import schema_sql as sql
    from rowsweep.queue.postgres.outbox.install import outbox_sql

    return outbox_sql(schema) if outbox_only else sql(schema)


def outbox_schema(dsn: str, schema: str | None = None, *, install: bool = False) -> OutboxStatus:
    """Answer whether a database has an outbox, with `install` after making it where it is missing."""
    from rowsweep.queue.postgres.outbox.install import install_outbox, outbox_status

    return install_outbox(dsn, schema) if install else outbox_status(dsn, schema)


def _ledger_schema(pl: Any) -> dict[str, Any]:
    text, whole, real = pl.String, pl.Int64, pl.Float64
    key = pl.List(text)
    shard = {
        "number": whole, "status": text, "rows": whole, "written": whole, "batches": whole, "percent": real,
        "cursor": key, "after": key, "to": key,
    }  # fmt: skip
    return {
        "run_id": text, "name": text, "kind": text, "status": text, "words": text, "rows": whole, "written": whole,
        "batches": whole, "total": whole, "total_is": text, "percent": real, "rows_per_second": real,
        "eta_seconds": real, "active_seconds": real, "waiting_for": text, "attempt": whole, "rejected_rows": whole,
        "shards": pl.List(pl.Struct(shard)),
        "last_error": text, "last_error_code": text, "launched_by": text, "environment": text, "app_version": text,
        "checksum": text, "started_at": text, "updated_at": text, "finished_at": text,
    }  # fmt: skip


def reset_event_bus() -> None:
    """Publish into a fresh heap of this process from now on; for tests."""
    from rowsweep.queue.memory.events.bus import MemoryEventBus

    use_event_bus(MemoryEventBus())
