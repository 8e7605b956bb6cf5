"""How the stores send a statement: over the driver's pools, or over a caller's connection."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import psycopg
from psycopg import Pipeline
from psycopg.pq import TransactionStatus

from rowsweep.clock import real_monotonic
from rowsweep.errors import DriverUnavailable
from rowsweep.queue.postgres.connections import IDLE_AT_MOST
from rowsweep.queue.postgres.pools import is_idle
from rowsweep.queue.postgres.statements.arrays import encoding_of
from rowsweep.queue.postgres.statements.cursor import copy_each, run, run_before, run_each
from rowsweep.queue.postgres.statements.prepared import run_prepared
from rowsweep.queue.postgres.statements.sql import render, render_script
from rowsweep.queue.postgres.translate import is_read_only, joined_errors, lost_errors, own_errors, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from psycopg import Connection
    from psycopg.rows import TupleRow

    from rowsweep.queue.postgres.connections import SweepConnection
    from rowsweep.queue.postgres.pools import Pools
    from rowsweep.queue.postgres.statements.sql import Statement
    from rowsweep.queue.stores.ledger import Behind

REPEAT_SECONDS: Final = 15.0
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 3.0
_WRAPPED: Final = f"begin isolation level read committed read write; {IDLE_AT_MOST}"
_WRAPPED_CONTROL: Final = f"{_WRAPPED}; set local statement_timeout = '5s'"


class Placed(Protocol):
    """Where tables are: which schema, and of which database, without a password."""

    @property
    def name(self) -> str:
        """The database, without a password."""

    def schema(self) -> str:
        """The schema, found at first use."""


class Session(Protocol):
    """A way of reaching the tables."""

    @property
    def place(self) -> str:
        """Where the tables are, without a password."""

    def rows(self, statement: Statement, values: Mapping[str, object]) -> list[TupleRow]:
        """Send one statement and answer its rows."""

    def rows_each(self, statement: Statement, values: Iterable[Mapping[str, object]]) -> list[list[TupleRow]]:
        """Send one statement for each of the values, without waiting in between where that can be; answer all rows."""

    def rows_before(self, statement: Statement, values: Mapping[str, object], behind: Behind) -> list[TupleRow]:
        """Send one statement, and more behind it before its rows are here; answer them."""

    def unit(self) -> AbstractContextManager[Session]:
        """Make several statements one unit of work."""


class PooledSession:
    """Send each statement over a pooled connection, where it commits by itself."""

    def __init__(self, pools: Pools, place: Placed, *, control: bool = False) -> None:
        self._pools = pools
        self._place = place
        self._control = control

    @property
    def place(self) -> str:
        """Answer the redacted DSN."""
        return self._pools.place

    def rows(self, statement: Statement, values: Mapping[str, object]) -> list[TupleRow]:
        """Send one statement; one that only reads is repeated while the connection is lost, for up to 15 s."""
        text = render(statement.text, self._place.schema())
        if statement.repeatable:
            return repeated(lambda: self._send(text, values, statement.prepare))
        return self._send(text, values, statement.prepare)

    @contextmanager
    def unit(self) -> Iterator[Session]:
        """Open a transaction on one pooled connection; the server ends it where this process is frozen inside."""
        self._place.schema()  # at first use the pool's size is asked on the way, over the same connection
        with self._pools.call(control=self._control) as connection, opened(connection, self.place):
            with lost_errors(self.place):
                connection.execute(IDLE_AT_MOST, prepare=False)
            yield JoinedSession(connection, self._place, own=True, pipelined=not self._pools.pooler)

    def rows_each(self, statement: Statement, values: Iterable[Mapping[str, object]]) -> list[list[TupleRow]]:
        """Send them one after the other, each committed by itself."""
        return [self.rows(statement, each) for each in values]

    def rows_before(self, statement: Statement, values: Mapping[str, object], behind: Behind) -> list[TupleRow]:
        """Send the statement, then what is behind it: here each commits by itself."""
        rows = self.rows(statement, values)
        behind.send()
        return rows

    def _send(self, text: Any, values: Mapping[str, object], prepare: bool | None) -> list[TupleRow]:
        lender = self._pools.lender(control=self._control)
        connection = lender.take()
        try:
            return self._answer(connection, text, values, prepare)
        except psycopg.Error as error:
            made = translated(error, self.place)
            if made is None:
                raise
            raise made from error
        finally:
            lender.give(connection, is_fit=is_idle(connection))

    def _answer(
        self, connection: SweepConnection, text: Any, values: Mapping[str, object], prepare: bool | None
    ) -> list[TupleRow]:
        if not self._pools.pooler:
            if prepare or (self._control and prepare is None):
                return run_prepared(connection, text, values, interruptible=not self._control)
            return run(connection, text, values, prepare=prepare)
        connection.execute(_WRAPPED_CONTROL if self._control else _WRAPPED)
        answer = run(connection, text, values, prepare=prepare)
        connection.execute("commit")
        return answer


class JoinedSession:
    """Send each statement over one connection, in the transaction that is open there; never ends it.

    On a caller's connection (`own=False`) psycopg's errors come out as they are, so that its owner treats all
    statements of the transaction alike; only a schema at fault is said in the package's words.
    """

    def __init__(
        self, connection: Connection[Any], place: Placed, *, own: bool = False, pipelined: bool = False
    ) -> None:
        self._connection = connection
        self._is_pipelined = pipelined and Pipeline.is_supported()
        self._place = place
        self.is_own = own
        self._errors = own_errors if own else joined_errors

    @property
    def place(self) -> str:
        """Answer where the driver's own connections lead."""
        return self._place.name

    def rows(self, statement: Statement, values: Mapping[str, object]) -> list[TupleRow]:
        """Send one statement in the caller's transaction."""
        text = render(statement.text, self._place.schema())
        with self._errors(self.place):
            return run(self._connection, text, values, prepare=None if statement.prepare else statement.prepare)

    def rows_each(self, statement: Statement, values: Iterable[Mapping[str, object]]) -> list[list[TupleRow]]:
        """Send them in the open transaction; on a connection of the package's own the server need not wait for us."""
        if not self._is_pipelined:
            return [self.rows(statement, each) for each in values]
        text = render(statement.text, self._place.schema())
        with self._errors(self.place):
            return run_each(self._connection, text, values)

    def rows_before(self, statement: Statement, values: Mapping[str, object], behind: Behind) -> list[TupleRow]:
        """Send all in one message in the open transaction; the statement's own error is raised here."""
        text = render(statement.text, self._place.schema())
        with self._errors(self.place):
            return run_before(self._connection, text, values, behind)

    def copy(self, statement: Statement, blocks: Callable[[str], Iterable[bytes]]) -> None:
        """Stream blocks in, each by a COPY of its own; they are made for the connection's encoding."""
        text = render_script(statement.text, self._place.schema())
        encoding = encoding_of(self._connection)
        with self._errors(self.place):
            copy_each(self._connection, text, blocks(encoding))

    @contextmanager
    def unit(self) -> Iterator[Session]:
        """Use the caller's open transaction; on a connection in autocommit mode without one, open one."""
        connection = self._connection
        if connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
            with connection.transaction():
                yield self
        else:
            yield self


@contextmanager
def _left_if_read_only(connection: Connection[Any]) -> Iterator[None]:
    """Close a connection to a server that takes no writes: after a failover the next one leads to the new primary."""
    try:
        yield
    except psycopg.Error as error:
        if is_read_only(error):
            connection.close()
        raise


@contextmanager
def opened(connection: Connection[Any], place: str) -> Iterator[None]:
    """Hold a transaction open for the block; errors of the block pass as they are."""
    block = connection.transaction()
    with lost_errors(place), _left_if_read_only(connection):
        block.__enter__()
    try:
        yield
    except BaseException as error:
        if not block.__exit__(type(error), error, error.__traceback__):
            raise
    else:
        with lost_errors(place):
            block.__exit__(None, None, None)


def repeated(read: Callable[[], list[TupleRow]]) -> list[TupleRow]:
    """Repeat a read while the connection is lost, with growing pauses up to 3 s."""
    give_up_at = real_monotonic() + REPEAT_SECONDS
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return read()
        except DriverUnavailable:
            if real_monotonic() + pause > give_up_at:
                raise
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
