"""The event bus of one process's heap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowsweep.options import count
from rowsweep.queue.bus import EventBus
from rowsweep.queue.memory.driver import MemoryDriver
from rowsweep.spelling import spelled

if TYPE_CHECKING:
    from datetime import timedelta


@spelled
class MemoryEventBus(EventBus):
    """Publish and find events in the memory of this process; no other process sees them.

    Without a driver it has a heap of its own. Beyond `max_events` the oldest go; expired ones go with each publication.
    """

    def __init__(
        self,
        driver: MemoryDriver | None = None,
        *,
        default_ttl: str | timedelta = "24h",
        max_events: int = 10_000,
        **more: Any,
    ) -> None:
        kept = driver or MemoryDriver()
        kept.keep_events(count(max_events, option="max_events", minimum=1))
        super().__init__(kept, default_ttl=default_ttl, list_limit=max_events, **more)
