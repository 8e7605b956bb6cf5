"""Sweep large Postgres tables safely, on a durable job system that lives in Postgres."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowsweep.app.app import App
from rowsweep.app.connecting import connect, current
from rowsweep.app.verbs import (
    attach,
    board,
    counters,
    health,
    install,
    install_outbox,
    jobs,
    ledger,
    reset_event_bus,
    runs,
    transaction,
    work,
)
from rowsweep.errors import RowsweepError
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.attempts.settled import Settled
from rowsweep.jobs.concurrency import Keyed
from rowsweep.jobs.ctx import Ctx
from rowsweep.jobs.declare import job
from rowsweep.jobs.handle import JobHandle
from rowsweep.jobs.request import EnqueueOptions, EnqueueResult
from rowsweep.jobs.tasks.declare import task
from rowsweep.jobs.tasks.handle import TaskHandle
from rowsweep.lifecycle import configure_lifecycle
from rowsweep.queue.bus import event_bus, events_purge_target, publish_event, use_event_bus
from rowsweep.queue.stores.events import Event
from rowsweep.sweeps.declare import backfill
from rowsweep.sweeps.handle import Sweep
from rowsweep.sweeps.keyset.rows import Rows
from rowsweep.sweeps.purge.declare import Budget, Purge, purge
from rowsweep.sweeps.purge.targets.own import RETENTION_CRON, own_targets
from rowsweep.sweeps.purge.targets.target import expired, older_than
from rowsweep.sweeps.run import Run
from rowsweep.sweeps.snapshot import Snapshot

if TYPE_CHECKING:
    from rowsweep.outbox.relay import OutboxRelay
    from rowsweep.queue.memory.driver import MemoryDriver
    from rowsweep.queue.memory.events.bus import MemoryEventBus
    from rowsweep.queue.postgres.bus import PostgresEventBus
    from rowsweep.queue.postgres.driver import PostgresDriver
    from rowsweep.scheduler.leaders import AdvisoryLockLeader, LeaseLeader, SoleLeader
    from rowsweep.scheduler.scheduler import Scheduler
    from rowsweep.signals import RunSignal
    from rowsweep.steps.runner import StepRunner
    from rowsweep.sweeps.batch.batch import Batch
    from rowsweep.sweeps.export.declare import Export, export_rows
    from rowsweep.sweeps.export.formats.arrow_file import ArrowFile
    from rowsweep.sweeps.export.formats.delimited import Csv
    from rowsweep.sweeps.export.formats.ndjson import Ndjson
    from rowsweep.sweeps.export.formats.parquet import Parquet
    from rowsweep.sweeps.export.readback.reader import read_export
    from rowsweep.sweeps.health.signals import (
        active_sessions_below,
        archive_backlog_below,
        batch_times_below,
        default_signals,
        lock_waits_below,
        oldest_snapshot_below,
        replica_lag_below,
        replica_lag_bytes_below,
        vacuum_idle,
        waiting_sessions_below,
    )
    from rowsweep.sweeps.passes.pacing import Pacer
    from rowsweep.worker.admission.limiter import ConcurrencyLimiter
    from rowsweep.worker.worker import Worker

__version__ = "0.1.0"

__all__ = [
    "RETENTION_CRON", "AdvisoryLockLeader", "App", "ArrowFile", "Batch", "Budget", "ConcurrencyLimiter", "Csv", "Ctx",
    "EnqueueOptions", "EnqueueResult", "Event", "Export", "JobHandle", "Keyed", "LeaseLeader", "MemoryDriver",
    "MemoryEventBus", "Ndjson", "OutboxRelay", "Pacer", "Parquet", "PostgresDriver", "PostgresEventBus", "Purge",
    "Retry", "Rows", "RowsweepError", "Run", "RunSignal", "Scheduler", "Settled", "Snapshot", "SoleLeader",
    "StepRunner", "Sweep", "TaskHandle", "Worker", "active_sessions_below", "archive_backlog_below", "attach",
    "backfill", "batch_times_below", "board", "configure_lifecycle", "connect", "counters", "current",
    "default_signals", "event_bus", "events_purge_target", "expired", "export_rows", "health", "install",
    "install_outbox", "job", "jobs", "ledger", "lock_waits_below", "older_than", "oldest_snapshot_below", "own_targets",
    "publish_event", "purge", "read_export", "replica_lag_below", "replica_lag_bytes_below", "reset_event_bus", "runs",
    "task", "transaction", "use_event_bus", "vacuum_idle", "waiting_sessions_below", "work",
]  # fmt: skip

_LATE = {
    "Export": "rowsweep.sweeps.export.declare",
    "export_rows": "rowsweep.sweeps.export.declare",
    "read_export": "rowsweep.sweeps.export.readback.reader",
    "ArrowFile": "rowsweep.sweeps.export.formats.arrow_file",
    "Csv": "rowsweep.sweeps.export.formats.delimited",
    "Ndjson": "rowsweep.sweeps.export.formats.ndjson",
    "Parquet": "rowsweep.sweeps.export.formats.parquet",
    "AdvisoryLockLeader": "rowsweep.scheduler.leaders",
    "Batch": "rowsweep.sweeps.batch.batch",
    "LeaseLeader": "rowsweep.scheduler.leaders",
    "ConcurrencyLimiter": "rowsweep.worker.admission.limiter",
    "MemoryDriver": "rowsweep.queue.memory.driver",
    "OutboxRelay": "rowsweep.outbox.relay",
    "Pacer": "rowsweep.sweeps.passes.pacing",
    "RunSignal": "rowsweep.signals",
    "StepRunner": "rowsweep.steps.runner",
    "MemoryEventBus": "rowsweep.queue.memory.events.bus",
    "PostgresDriver": "rowsweep.queue.postgres.driver",
    "PostgresEventBus": "rowsweep.queue.postgres.bus",
    "Scheduler": "rowsweep.scheduler.scheduler",
    "SoleLeader": "rowsweep.scheduler.leaders",
    "Worker": "rowsweep.worker.worker",
    **dict.fromkeys(
        (
            "active_sessions_below", "archive_backlog_below", "batch_times_below", "default_signals",
            "lock_waits_below", "oldest_snapshot_below", "replica_lag_below", "replica_lag_bytes_below", "vacuum_idle",
            "waiting_sessions_below",
        ),
        "rowsweep.sweeps.health.signals",
    ),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import what needs a database library, or many modules, when it is first asked for."""
    if name not in _LATE:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module

    return getattr(import_module(_LATE[name]), name)
