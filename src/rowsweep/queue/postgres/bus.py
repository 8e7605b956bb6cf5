"""The event bus of a fleet: events in Postgres, for every process that shares it."""

from __future__ import annotations

from rowsweep.queue.bus import EventBus
from rowsweep.spelling import spelled


@spelled
class PostgresEventBus(EventBus):
    """Publish and find events in `x_job_events` of a `PostgresDriver`."""
