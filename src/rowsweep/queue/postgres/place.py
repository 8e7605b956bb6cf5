"""Which schema of which database the tables are in; asked once per process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from rowsweep.queue.postgres.connections import configure, connect_once
from rowsweep.queue.postgres.migrations import latest_version
from rowsweep.queue.postgres.statements.cursor import run
from rowsweep.queue.postgres.statements.sql import load, render
from rowsweep.queue.postgres.translate import own_errors, schema_missing, schema_outdated

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.rows import TupleRow

_SQL = load(__name__)


class Place:
    """Find the schema at first use, refusing a server below 15 and tables that are missing or too old."""

    def __init__(self, dsn: str, name: str, schema: str | None, *, pooler: bool = False) -> None:
        self.name = name
        self._dsn = dsn
        self._pooler = pooler
        self._named = schema
        self._found: str | None = None
        self._identity: TupleRow | None = None
        self._role_limit: int | None = None
        self._is_limit_known = False
        self._known: WeakKeyDictionary[Connection[Any], bool] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def schema(self) -> str:
        """Answer the schema's name; raises DriverUnavailable, SchemaMissing, SchemaOutdated until all is well."""
        if self._found is not None:
            return self._found  # without the lock, which a thread of a parent may have held when it forked
        with self._lock:
            if self._found is None:
                self._found = self._find()
            return self._found

    def role_limit(self) -> int | None:
        """Answer how many connections the role may hold at once, None for any number; needs no tables.

        Raises DriverUnavailable.
        """
        if self._is_limit_known:
            return self._role_limit  # without the lock, as above
        with self._lock:
            if not self._is_limit_known:
                with connect_once(self._dsn, self.name) as connection, own_errors(self.name):
                    configure(connection, control=True, pooler=self._pooler)
                    self._note_limit(connection)
            return self._role_limit

    def is_home(self, connection: Connection[Any]) -> bool:
        """Say whether a caller's connection leads to the very database that keeps the tables; asked once of each.

        Told by the install id with the database's oid and the server's identifier, so a restored copy is another.
        """
        known = self._known.get(connection)
        if known is None:
            schema = self.schema()
            known = bool(versions(connection, schema)) and _identity(connection, schema) == self._identity
            self._known[connection] = known
        return known

    def note_home(self, connection: Connection[Any]) -> None:
        """Note that a connection is one of this place's own, so that it need not be asked."""
        self._known[connection] = True

    def _find(self) -> str:
        with connect_once(self._dsn, self.name) as connection, own_errors(self.name):
            configure(connection, control=True, pooler=self._pooler)
            self._note_limit(connection)
            schema = self._named or find_schema(connection)
            rows = versions(connection, schema)
            if not rows:
                raise schema_missing(self.name)
            found = max(row[0] for row in rows)
            if found < latest_version():
                raise schema_outdated(self.name, found, latest_version())
            self._identity = _identity(connection, schema)
            return schema

    def _note_limit(self, connection: Connection[Any]) -> None:
        self._role_limit = run(connection, _SQL["role_limit"].text, {})[0][0]
        self._is_limit_known = True


def find_schema(connection: Connection[Any]) -> str:
    """Answer the schema that the connection's search path finds the tables in, or would make them in."""
    return str(run(connection, _SQL["find_schema"].text, {})[0][0] or "public")


def versions(connection: Connection[Any], schema: str) -> list[TupleRow]:
    """Answer `(version, name, checksum, install id)` of each migration applied, none where there is no install."""
    if not run(connection, _SQL["find_install"].text, {"schema": schema})[0][0]:
        return []
    return run(connection, render(_SQL["versions"].text, schema), {})


def _identity(connection: Connection[Any], schema: str) -> TupleRow:
    return run(connection, render(_SQL["identify"].text, schema), {})[0]
