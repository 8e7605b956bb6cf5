"""Outboxes of other databases: found over a caller's connection, or reached over pools by a relay."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from rowsweep.errors import InvalidOption, SchemaMissing
from rowsweep.queue.postgres.connections import Connections, configure, connect_once
from rowsweep.queue.postgres.outbox.store import PostgresOutbox
from rowsweep.queue.postgres.pools import Pools
from rowsweep.queue.postgres.statements.cursor import run
from rowsweep.queue.postgres.statements.session import JoinedSession, PooledSession
from rowsweep.queue.postgres.statements.sql import load
from rowsweep.queue.postgres.stores.upkeep.retention import PostgresRetention
from rowsweep.queue.postgres.translate import own_errors
from rowsweep.queue.postgres.wake import PostgresWake
from rowsweep.telemetry.redact import redact_dsn

if TYPE_CHECKING:
    from psycopg import Connection

_SQL = load(__name__)
INSTALL: Final = "rowsweep schema install --outbox-only --dsn postgresql://…"


@dataclass(frozen=True, slots=True)
class _Found:
    """One outbox: where it is, which database that is, and whether a whole queue is beside it."""

    name: str
    found: str
    database: tuple[int, str]
    has_queue: bool

    def schema(self) -> str:
        return self.found

    def is_same(self, other: _Found) -> bool:
        return (self.database, self.found) == (other.database, other.found)


class PostgresOutboxPlace:
    """The outbox of another database than the queue's, for a relay; opened at first use."""

    def __init__(self, dsn: str, *, schema: str | None = None, pooler: bool = False) -> None:
        self._dsn = dsn
        self._named = schema
        self._pools = Pools(Connections(dsn=dsn, control=2), pooler=pooler)
        self._lock = threading.Lock()
        self._known: _Found | None = None
        session = PooledSession(self._pools, self, control=True)
        self.outbox = PostgresOutbox(session)
        self.retention = PostgresRetention(session)

    @property
    def place(self) -> str:
        """Answer the DSN without its password."""
        return redact_dsn(self._dsn)

    @property
    def name(self) -> str:
        """Answer the same."""
        return self.place

    def schema(self) -> str:
        """Answer the schema that has the outbox; DriverUnavailable, SchemaMissing."""
        return self.find().found

    def find(self) -> _Found:
        """Find the outbox, once."""
        if self._known is not None:
            return self._known
        with self._lock:
            if self._known is None:
                with connect_once(self._dsn, self.place) as connection, own_errors(self.place):
                    configure(connection, control=True, pooler=self._pools.pooler)
                    self._known = _find(connection, self._named, self.place)
            return self._known

    def listen(self) -> PostgresWake | None:
        """Open a LISTEN session; None behind a transaction pooler."""
        return None if self._pools.pooler else PostgresWake.opened(self._dsn, self.place)

    def close(self) -> None:
        """Close every connection; the next use opens new ones."""
        self._pools.close()


class CallersOutboxes:
    """Answer the outbox of the database that a caller's connection leads to; asked once of each connection."""

    def __init__(self, schema: str | None) -> None:
        self._named = schema
        self._found: WeakKeyDictionary[Connection[Any], _Found] = WeakKeyDictionary()

    def over(
        self, connection: Connection[Any], *, home: str, known: PostgresOutboxPlace | None, is_asked: bool
    ) -> PostgresOutbox:
        """Answer the store over this connection, in its transaction.

        SchemaMissing where that database has no outbox. One with a queue of its own may be a copy of the queue's
        database that nobody relays from: InvalidOption unless it is the known one, or was asked for.
        """
        found = self._found.get(connection)
        if found is None:
            found = self._found[connection] = _find(connection, self._named, _place_of(connection))
        if found.has_queue and not is_asked and (known is None or not known.find().is_same(found)):
            raise InvalidOption(
                f"tx leads to another database than the queue's ({home}), and that one has a queue of its own.",
                fix="pass a connection of the queue's database; or name that database, rs.connect(…, "
                'outbox="postgresql://…"), or say enqueue(…, outbox=True), and run rowsweep relay --outbox-dsn for it',
                meta={"option": "tx"},
            )
        return PostgresOutbox(JoinedSession(connection, found))


def _place_of(connection: Connection[Any]) -> str:
    return redact_dsn(connection.info.dsn)


def _find(connection: Connection[Any], schema: str | None, place: str) -> _Found:
    rows = run(connection, _SQL["find"].text, {"schema": schema})
    if not rows:
        raise SchemaMissing(f"{place} has no x_outbox to stage a job in.", fix=INSTALL, meta={"place": place})
    oid, system = run(connection, _SQL["database"].text, {})[0]
    return _Found(place, rows[0][0], (oid, system), has_queue=rows[0][1])
