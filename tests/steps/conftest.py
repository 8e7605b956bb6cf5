"""The driver under test, and nothing declared or queued."""

from __future__ import annotations

from tests.worker.world import memory, postgres, queue_connection, queue_dsn, shop

__all__ = ["memory", "postgres", "queue_connection", "queue_dsn", "shop"]
