"""How a connection is made: what it is set to, and the kind that a sweep's batches run on."""

from __future__ import annotations

import os
import select
from dataclasses import dataclass, field
from itertools import count as counting
from typing import TYPE_CHECKING, Any, Final, NoReturn

import psycopg
from psycopg import IsolationLevel
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from rowsweep.errors import DriverUnavailable, TransactionEnded
from rowsweep.options import count, finite
from rowsweep.queue.postgres.statements import message
from rowsweep.queue.postgres.translate import unreachable
from rowsweep.spelling import spelled
from rowsweep.telemetry.redact import redact_dsn

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import LiteralString

    from psycopg.abc import Transformer
    from psycopg.pq.abc import PGconn

OLDEST_SERVER: Final = 150_000
CONTROL_STATEMENT_SECONDS: Final = 5
# A plan made while a table was small would walk it once it is large, so the queue's own connections never scan. Made
# once for all values: to plan a claim anew costs several times what it takes to run it.
_SESSION: Final[LiteralString] = """
set default_transaction_isolation = 'read committed';
set default_transaction_read_only = off;
set default_transaction_deferrable = off;
set idle_session_timeout = 0;
set array_nulls = on;
set timezone = 'UTC'"""
# A process that is frozen inside a transaction would keep its locks, a job's row among them, for as long as it is.
IDLE_AT_MOST: Final[LiteralString] = "set local idle_in_transaction_session_timeout = '30s'"
_CONTROL: Final[LiteralString] = """;
set statement_timeout = '5s';
set lock_timeout = 0;
set enable_seqscan = off;
set plan_cache_mode = force_generic_plan;
set jit = off"""
_WORK: Final[LiteralString] = """;
set statement_timeout = 0;
set lock_timeout = 0;
set jit = off"""
# All of DISCARD ALL but the prepared statements, which psycopg keeps count of.
_FORGET: Final[LiteralString] = """
close all;
set session authorization default;
reset all;
unlisten *;
select pg_advisory_unlock_all();
discard temp;
discard sequences;"""
# A peer that vanished without a word is noticed within seconds, not after two hours.
_ALIVE: Final[dict[str, int]] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


@spelled
@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """Say how to reach the database and how many connections may be open at once.

    `work` are for bodies and the application's calls; `control` for the claim loop, keeper and settler.
    """

    dsn: str = field(repr=False)
    work: int = 10
    control: int = 6
    wait_seconds: float = 10.0

    def __post_init__(self) -> None:
        count(self.work, option="work", minimum=1)
        count(self.control, option="control", minimum=1)
        finite(self.wait_seconds, option="wait_seconds", minimum=0.1)

    @property
    def place(self) -> str:
        """Answer the DSN without its password."""
        return redact_dsn(self.dsn)


class SweepConnection(psycopg.Connection[Any]):
    """A connection whose owner may lend it to a handler: while a batch is open, nobody else may end its transaction."""

    batch_open: bool = False
    taken_at: float = 0.0
    takes_messages = message.is_supported()

    def __init__(self, pgconn: PGconn) -> None:
        super().__init__(pgconn)
        self.prepared: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self.numbers = counting()
        self.transformer: Transformer | None = None

    def message(self) -> AbstractContextManager[None]:
        """Send the statements of the block in one message at its end, nothing where it raises."""
        return message.message(self)

    def forget_handlers(self) -> None:
        """Take back the loaders, dumpers and notice handlers that a body registered."""
        self._adapters = None
        self._notice_handlers.clear()
        self._notify_handlers.clear()

    def commit(self) -> None:
        """Commit, unless a batch is open: TransactionEnded."""
        if self.batch_open:
            _refuse("commit")
        super().commit()

    def rollback(self) -> None:
        """Roll back, unless a batch is open: TransactionEnded."""
        if self.batch_open:
            _refuse("rollback")
        super().rollback()


def _refuse(verb: str) -> NoReturn:
    raise TransactionEnded(
        f"a handler called {verb}() on its batch's connection; the batch commits by itself.",
        fix="atomic=False, or with batch.connection.transaction(): for a savepoint",
        meta={"verb": verb},
    )


def refuse_ended(connection: psycopg.Connection[Any]) -> None:
    """Refuse a transaction that SQL in it has ended: what follows commits by itself. TransactionEnded."""
    if connection.info.transaction_status is TransactionStatus.IDLE:
        raise TransactionEnded(
            "COMMIT or ROLLBACK was sent as SQL inside a transaction that rowsweep ends: what was written before it "
            "and what came after do not stand or fall together, nor with the claim of a run.",
            fix="remove the COMMIT; savepoints are `with tx.transaction():`",
        )


def full_dsn(dsn: str) -> str:
    """Answer the DSN with the package's name, time limits and encoding, where it does not set its own.

    Without an encoding, a database of none (SQL_ASCII) would answer bytes for text.
    """
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.Error:
        # libpq quotes the part it does not understand, which may be the password.
        raise DriverUnavailable(
            "the DSN does not parse.", fix='rs.connect("postgresql://user@host/database"), special characters as %40'
        ) from None
    name = given.get("application_name") or os.environ.get("PGAPPNAME") or "rowsweep"
    missing = {key: value for key, value in _ALIVE.items() if key not in given}
    encoding = str(given.get("client_encoding") or "utf8")
    return make_conninfo(dsn, **missing, client_encoding=encoding, application_name=name)


def connect_once(dsn: str, place: str) -> psycopg.Connection[Any]:
    """Open one connection outside any pool; DriverUnavailable where that fails or the server is below 15."""
    try:
        connection = SweepConnection.connect(full_dsn(dsn), autocommit=True, row_factory=tuple_row)
    except psycopg.Error as error:
        raise unreachable(place, error) from error
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    connection.read_only = False
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        connection.close()
        raise DriverUnavailable(
            f"the server at {place} is PostgreSQL {version // 10_000}; rowsweep needs 15 or newer.",
            fix='rs.connect("postgresql://…") to a server of version 15 to 18',
            meta={"place": place, "server_version": version},
        )
    return connection


def configure(connection: psycopg.Connection[Any], *, control: bool, pooler: bool) -> None:
    """Set a fresh connection up; behind a pooler only what stays on this side of it."""
    connection.autocommit = True
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    connection.read_only = False
    connection.row_factory = tuple_row
    if pooler:
        connection.prepare_threshold = None
    else:
        connection.execute(_SESSION + (_CONTROL if control else _WORK))


def forget(connection: SweepConnection, *, pooler: bool) -> bool:
    """Take back what a body may have set on a connection; False where it is not fit to be lent again."""
    connection.batch_open = False
    if connection.closed or connection.info.transaction_status is not TransactionStatus.IDLE:
        return False
    connection.cursor_factory = psycopg.Cursor
    connection.forget_handlers()
    try:
        if not pooler:
            connection.execute(_FORGET)
        configure(connection, control=False, pooler=pooler)
    except psycopg.Error:
        return False
    return True


def check_open(connection: psycopg.Connection[Any]) -> None:
    """Raise where an idle connection has something to read, without a round trip: it is the server's farewell."""
    poll = select.poll()  # which, other than select, takes a process's files of any number
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0) or connection.closed:
        connection.close()  # a pool keeps what only failed its check
        raise psycopg.OperationalError("the server closed the connection")
