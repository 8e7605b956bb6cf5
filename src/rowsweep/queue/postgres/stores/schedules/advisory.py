"""A session's advisory lock, on a connection of its own."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

from rowsweep.errors import DriverUnavailable
from rowsweep.queue.postgres.connections import connect_once
from rowsweep.queue.postgres.statements.cursor import run
from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.postgres.translate import own_errors

if TYPE_CHECKING:
    import psycopg

    from rowsweep.queue.postgres.connections import Connections

_SQL = load("rowsweep.queue.postgres.stores.schedules.leader")
_inherited: list[object] = []


class AdvisoryLock:
    """Hold one lock of the database for as long as its connection lives; used by one thread at a time.

    It is taken once however often it is asked for: taken twice, one unlock would not give it back.
    """

    def __init__(self, connections: Connections, key: str) -> None:
        self._connections = connections
        self._key = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], signed=True)
        self._pid = os.getpid()
        self._connection: psycopg.Connection[Any] | None = None
        self._is_held = False

    def acquire(self) -> bool:
        """Take the lock, or make sure that the connection that holds it still lives; say whether it is held."""
        self._leave_to_parent()
        if self._is_held:
            try:
                return bool(self._ask("is_alive"))
            except DriverUnavailable:
                self._drop()
        self._is_held = bool(self._ask("try_advisory_lock"))
        if not self._is_held:
            self._drop()
        return self._is_held

    def release(self) -> None:
        """Give the lock back and close the connection."""
        self._leave_to_parent()
        try:
            if self._is_held:
                self._ask("advisory_unlock")
        finally:
            self._drop()

    def _ask(self, name: str) -> object:
        if self._connection is None or self._connection.closed:
            self._connection = connect_once(self._connections.dsn, self._connections.place)
        with own_errors(self._connections.place):
            return run(self._connection, _SQL[name].text, {"key": self._key})[0][0]

    def _drop(self) -> None:
        connection, self._connection, self._is_held = self._connection, None, False
        if connection is not None:
            connection.close()

    def _leave_to_parent(self) -> None:
        """Forget a parent's connection in a forked child, without closing the socket that both have."""
        if self._pid != os.getpid():
            _inherited.append(self._connection)
            self._pid, self._connection, self._is_held = os.getpid(), None, False
