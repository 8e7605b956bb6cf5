"""The system's own tables as targets of a purge, and the purge and task that keep them small."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from rowsweep.errors import NotImplementedByDriver
from rowsweep.jobs.registry import find_job
from rowsweep.jobs.tasks.declare import task
from rowsweep.jobs.tasks.registry import registered_tasks
from rowsweep.queue.bus import EVENTS_PURGE_TARGET
from rowsweep.sweeps.purge.declare import Purge, purge
from rowsweep.sweeps.run import host

if TYPE_CHECKING:
    from rowsweep.jobs.tasks.handle import TaskHandle
    from rowsweep.queue.stores.retention import Removable, RetentionKind, RetentionStore

RETENTION: Final = "rowsweep-retention"
RETENTION_CRON: Final = "17 * * * *"
_BATCH_ROWS: Final = 1_000
_AT_ONCE: Final = timedelta(0)
_WEEK: Final = timedelta(days=7)
_MONTH: Final = timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTarget:
    """Rows of the queue's own tables, kept for so long once they are over."""

    name: str
    kept: tuple[tuple[RetentionKind, timedelta], ...]

    def purge_expired(self, at: datetime) -> int:
        """Remove what had been over for long enough at an instant; answer how many rows."""
        return sum(self.batches(at))

    def batches(self, at: datetime) -> Iterator[int]:
        """Remove it batch by batch, the place carried from one to the next."""
        store = _store()
        for kind, keep in self.kept:
            after: datetime | None = None
            while True:
                gone = store.remove(kind, before=at - keep, after=after, limit=_BATCH_ROWS)
                if gone.rows:
                    yield gone.rows
                if gone.rows < _BATCH_ROWS:
                    break
                after = gone.last_at

    def removable(self, at: datetime) -> list[Removable]:
        """Count what would go, by kind."""
        store = _store()
        return [store.removable(kind, before=at - keep) for kind, keep in self.kept]


def own_targets() -> list[OwnTarget]:
    """Answer the system's own tables as targets.

    Finished jobs with their steps (`done` and `cancelled` 7 days, `dead` and `failed` 30), expired events, published
    outbox rows (7 days), counters past their tier, expired workers and slots, and the ledger rows of purges (30 days;
    the ledger rows of backfills and exports say what was applied, and stay).
    """
    return [
        OwnTarget(name="rowsweep-jobs", kept=(("done-jobs", _WEEK), ("cancelled-jobs", _WEEK))),
        OwnTarget(name="rowsweep-dead-jobs", kept=(("dead-jobs", _MONTH), ("failed-jobs", _MONTH))),
        OwnTarget(name=EVENTS_PURGE_TARGET, kept=(("events", _AT_ONCE),)),
        OwnTarget(name="rowsweep-outbox", kept=(("outbox", _WEEK),)),
        OwnTarget(
            name="rowsweep-counters",
            kept=(
                ("minute-counters", timedelta(hours=2)),
                ("hour-counters", timedelta(days=14)),
                ("day-counters", timedelta(days=400)),
            ),
        ),
        OwnTarget(name="rowsweep-workers", kept=(("workers", _AT_ONCE),)),
        OwnTarget(name="rowsweep-slots", kept=(("slots", _AT_ONCE),)),
        OwnTarget(name="rowsweep-purges", kept=(("purges", _MONTH),)),
    ]


def declare_retention() -> tuple[Purge, TaskHandle]:
    """Declare the purge of the system's own tables and its hourly task; those of that name already there stay."""
    retention = find_job(RETENTION)
    if not isinstance(retention, Purge):
        retention = purge(
            RETENTION, targets=own_targets, description="Removes what rowsweep's own tables need no more."
        )
    hourly = next((known for known in registered_tasks() if known.name == RETENTION), None)
    if hourly is None:
        hourly = task(RETENTION, cron=RETENTION_CRON, tz="UTC", enqueue=_retention)
    return retention, hourly


def _retention(_: datetime) -> list[tuple[Any, Any]]:
    return [(find_job(RETENTION), None)]


def _store() -> RetentionStore:
    driver = host().driver
    store = driver.stores().retention
    if store is None:
        raise NotImplementedByDriver(
            f"The driver {driver.name!r} does not remove its own rows.",
            fix="rs.connect() with the Postgres driver",
            meta={"driver": driver.name, "feature": "retention"},
        )
    return store
