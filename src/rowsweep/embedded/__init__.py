"""Start and stop the embedded Postgres: one server a folder, shared by the processes that use it."""

from __future__ import annotations

from rowsweep.embedded.programs import EmbeddedUnavailable
from rowsweep.embedded.server import EmbeddedServer, start

__all__ = ["EmbeddedServer", "EmbeddedUnavailable", "start"]
