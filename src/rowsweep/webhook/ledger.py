"""Where attempts are recorded and endpoints switched off: a seam, since every business keeps them differently."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rowsweep.webhook.endpoint import Delivery


class WebhookLedger(Protocol):
    """Keep deliveries and switches. Called from worker threads; what it raises fails the attempt."""

    def record(self, delivery: Delivery) -> None:
        """Keep one attempt; called before its error is raised."""

    def is_disabled(self, endpoint_id: str) -> bool:
        """Say whether an endpoint is switched off; asked before each attempt."""

    def disable(self, endpoint_id: str, reason: str) -> None:
        """Switch an endpoint off; twice is once. Switching it on again is the application's act."""

    def consecutive_failures(self, endpoint_id: str) -> int:
        """Count the attempts with the outcome `failed` since the last `delivered` one."""


class MemoryWebhookLedger:
    """Keep everything in this process, for tests and trials."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deliveries: list[Delivery] = []
        self._disabled: dict[str, str] = {}

    @property
    def deliveries(self) -> list[Delivery]:
        """Answer every attempt recorded, in order."""
        with self._lock:
            return list(self._deliveries)

    @property
    def disabled(self) -> dict[str, str]:
        """Answer the endpoints that are switched off, each with why."""
        with self._lock:
            return dict(self._disabled)

    def record(self, delivery: Delivery) -> None:
        """Keep one attempt."""
        with self._lock:
            self._deliveries.append(delivery)

    def is_disabled(self, endpoint_id: str) -> bool:
        """Say whether an endpoint is switched off."""
        with self._lock:
            return endpoint_id in self._disabled

    def disable(self, endpoint_id: str, reason: str) -> None:
        """Switch an endpoint off; the first reason stays."""
        with self._lock:
            self._disabled.setdefault(endpoint_id, reason)

    def enable(self, endpoint_id: str) -> None:
        """Switch an endpoint on again."""
        with self._lock:
            self._disabled.pop(endpoint_id, None)

    def consecutive_failures(self, endpoint_id: str) -> int:
        """Count the failures since the last delivered attempt."""
        failures = 0
        for delivery in reversed(self.deliveries):
            if delivery.endpoint_id == endpoint_id and delivery.outcome != "throttled":
                if delivery.outcome == "delivered":
                    break
                failures += 1
        return failures
