"""The Postgres driver: stores over pools, over one transaction, or over a caller's connection."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rowsweep.clock import SystemClock
from rowsweep.errors import DriverUnavailable, InvalidOption
from rowsweep.queue.contract import Stores, Transaction
from rowsweep.queue.postgres import install as schema_install
from rowsweep.queue.postgres.bus import PostgresEventBus
from rowsweep.queue.postgres.callers import begun, held_by, joinable
from rowsweep.queue.postgres.connections import Connections, refuse_ended
from rowsweep.queue.postgres.outbox.places import CallersOutboxes
from rowsweep.queue.postgres.outbox.store import PostgresOutbox
from rowsweep.queue.postgres.place import Place
from rowsweep.queue.postgres.pools import Pools
from rowsweep.queue.postgres.statements.session import JoinedSession, PooledSession, opened
from rowsweep.queue.postgres.stores.events import PostgresEvents
from rowsweep.queue.postgres.stores.holds.pauses import PostgresPauses
from rowsweep.queue.postgres.stores.holds.shards import PostgresShards
from rowsweep.queue.postgres.stores.holds.slots import PostgresSlots
from rowsweep.queue.postgres.stores.inspection import PostgresInspection
from rowsweep.queue.postgres.stores.jobs import PostgresJobs
from rowsweep.queue.postgres.stores.ledger.rejected import PostgresRejected
from rowsweep.queue.postgres.stores.ledger.store import PostgresLedger
from rowsweep.queue.postgres.stores.schedules.advisory import AdvisoryLock
from rowsweep.queue.postgres.stores.schedules.leader import PostgresLeader
from rowsweep.queue.postgres.stores.schedules.watermarks import PostgresSchedules
from rowsweep.queue.postgres.stores.steering import PostgresSteering
from rowsweep.queue.postgres.stores.steps import PostgresSteps
from rowsweep.queue.postgres.stores.upkeep.counters import PostgresCounters
from rowsweep.queue.postgres.stores.upkeep.health import PostgresHealth
from rowsweep.queue.postgres.stores.upkeep.retention import PostgresRetention
from rowsweep.queue.postgres.stores.workers import PostgresWorkers
from rowsweep.queue.postgres.wake import PostgresWake
from rowsweep.spelling import spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from rowsweep.clock import Clock
    from rowsweep.queue.bus import EventBus
    from rowsweep.queue.postgres.connections import SweepConnection
    from rowsweep.queue.postgres.install import SchemaStatus
    from rowsweep.queue.postgres.outbox.places import PostgresOutboxPlace
    from rowsweep.queue.postgres.statements.session import Session

_FIX = 'rs.connect("postgresql://…"), $DATABASE_URL, or rs.connect(driver=MemoryDriver())'


@spelled
class PostgresDriver:
    """Keep the queue in a Postgres database; nothing is opened before the first use.

    `schema=None` is where the connection's search path finds the tables. `pooler=True` works behind a transaction
    pooler: nothing is prepared and nothing is set on a session. Postgres stamps every instant, so `clock` is only
    handed on.
    """

    def __init__(
        self,
        connections: str | Connections | None,
        *,
        schema: str | None = None,
        pooler: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._connections = _checked(connections)
        self._place = Place(self._connections.dsn, self._connections.place, schema, pooler=pooler)
        self._pools = Pools(self._connections, pooler=pooler, role_limit=self._place.role_limit)
        self._outboxes = CallersOutboxes(schema)
        self._schema = schema
        self.clock: Clock = clock or SystemClock()
        self._stores = _stores_over(PooledSession(self._pools, self._place))
        self._control = _stores_over(PooledSession(self._pools, self._place, control=True))

    @property
    def name(self) -> str:
        """Answer `postgres`."""
        return "postgres"

    @property
    def place(self) -> str:
        """Answer the DSN without its password."""
        return self._connections.place

    @property
    def pooler(self) -> bool:
        """Say whether a transaction pooler stands between: nothing lasts longer than a transaction then."""
        return self._pools.pooler

    @property
    def address(self) -> tuple[str, str | None]:
        """Answer what tells this place from another: the DSN as given and the schema named. Holds the password."""
        return self._connections.dsn, self._schema

    def stores(self) -> Stores:
        """Answer stores over the work pool; each call commits by itself."""
        return self._stores

    def control(self) -> Stores:
        """Answer stores over the control pool, whose statements time out after 5 s."""
        return self._control

    @contextmanager
    def transaction(self, *, settings: Mapping[str, str] | None = None) -> Iterator[Transaction]:
        """Open one transaction on a connection of the work pool; `settings` last as long as it does."""
        with self._pools.work() as connection, opened(connection, self.place):
            self._place.note_home(connection)
            for name, value in (settings or {}).items():
                connection.execute("select set_config(%s, %s, true)", [name, value])
            session = JoinedSession(connection, self._place, own=True)
            yield Transaction(stores=_stores_over(session), connection=connection)
            refuse_ended(connection)

    def join(self, connection: Any) -> Stores:
        """Answer the stores over a psycopg connection, or one of SQLAlchemy or Django that holds one."""
        return _stores_over(JoinedSession(held_by(connection), self._place))

    def outbox_over(
        self, tx: Any, *, known: PostgresOutboxPlace | None = None, is_asked: bool = False
    ) -> PostgresOutbox | None:
        """Answer the outbox that an enqueue over a caller's transaction is staged in, None where none is needed.

        None is needed in the queue's own database, unless asked for. `known` is the other database that this app's
        jobs are staged in. Raises TransactionRequired, SchemaMissing, InvalidOption.
        """
        connection = joinable(tx)
        if self._place.is_home(connection):
            return PostgresOutbox(JoinedSession(connection, self._place)) if is_asked else None
        return self._outboxes.over(connection, home=self.place, known=known, is_asked=is_asked)

    def begun(self, tx: Any) -> AbstractContextManager[Any]:
        """Open a transaction on a caller's connection in its library's own way, a savepoint where one is open."""
        return begun(tx)

    def is_home(self, connection: Any) -> bool:
        """Say whether a caller's connection leads to the database that keeps this queue."""
        return self._place.is_home(held_by(connection))

    @contextmanager
    def sweep_connection(self, wanted: Callable[[], None] | None = None) -> Iterator[SweepConnection]:
        """Lend a connection in autocommit mode; closed, not returned, if left in a transaction.

        `wanted` is called, on whatever thread, where somebody waits for one.
        """
        with self._pools.work(wanted) as connection:
            self._place.note_home(connection)
            yield connection

    def spare_connection(self) -> AbstractContextManager[SweepConnection]:
        """Lend one more where there is one within a second; DriverUnavailable otherwise."""
        return self._pools.work(spare=True)

    def question_connection(self) -> AbstractContextManager[SweepConnection]:
        """Lend a connection for a short question of the package's own, whose statements time out after 5 s."""
        return self._pools.call(control=True)

    def advisory_lock(self, key: str) -> AdvisoryLock:
        """Answer a session's lock of this database and schema, on a connection of its own; it is not taken yet."""
        if self.pooler:
            raise InvalidOption(
                "an advisory lock is a session's, and behind a transaction pooler no session is ours.",
                fix="LeaseLeader(driver), which needs no particular connection",
                meta={"option": "pooler"},
            )
        return AdvisoryLock(self._connections, f"{self._place.schema()}:{key}")

    def reserve(self, bodies: int) -> None:
        """Make sure that so many bodies, each with a connection, leave some for the application's own calls."""
        self._pools.reserve(bodies)

    def event_bus(self, **options: Any) -> EventBus:
        """Answer a bus over this driver; takes the bus's options."""
        return PostgresEventBus(self, **options)

    def ping(self) -> None:
        """Ask the database once; raises DriverUnavailable, SchemaMissing, SchemaOutdated."""
        self._place.schema()

    def install(self, *, is_only: bool = False) -> SchemaStatus:
        """Install the tables, or bring them up to this version.

        Where the schema `is_only`, InvalidOption instead of a second set of tables in the database.
        """
        return schema_install.install(self._connections.dsn, self._schema, is_only=is_only)

    def schema_status(self) -> SchemaStatus:
        """Answer what is installed."""
        return schema_install.status(self._connections.dsn, self._schema)

    def listen(self) -> PostgresWake | None:
        """Open a LISTEN session; None behind a transaction pooler, which would give it to others."""
        return None if self.pooler else PostgresWake.opened(self._connections.dsn, self.place)

    def close(self) -> None:
        """Close every connection; the next use opens new ones."""
        self._pools.close()


def _stores_over(session: Session) -> Stores:
    return Stores(
        jobs=PostgresJobs(session),
        steps=PostgresSteps(session),
        ledger=PostgresLedger(session),
        rejected=PostgresRejected(session),
        inspection=PostgresInspection(session),
        steering=PostgresSteering(session),
        workers=PostgresWorkers(session),
        schedules=PostgresSchedules(session),
        leader=PostgresLeader(session),
        slots=PostgresSlots(session),
        pauses=PostgresPauses(session),
        events=PostgresEvents(session),
        retention=PostgresRetention(session),
        health=PostgresHealth(session),
        counters=PostgresCounters(session),
        outbox=PostgresOutbox(session),
        shards=PostgresShards(session),
    )


def _checked(connections: str | Connections | None) -> Connections:
    if not connections:
        raise DriverUnavailable("PostgresDriver was given no connections.", fix=_FIX)
    return connections if isinstance(connections, Connections) else Connections(dsn=connections)
