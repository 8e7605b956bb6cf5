"""The table as the sweep left it: one transaction that only reads, held until those that were open have ended."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from rowsweep.errors import DriverUnavailable
from rowsweep.steps.cancel import cancel_on_abort
from rowsweep.sweeps.batch.connection import of_transaction
from rowsweep.sweeps.keyset.catalog import quoted
from rowsweep.sweeps.keyset.cursor import run
from rowsweep.sweeps.keyset.expressions import key_casts
from rowsweep.sweeps.late.writers import find_writers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rowsweep.signals import RunSignal
    from rowsweep.sweeps.batch.source import Lender
    from rowsweep.sweeps.keyset.catalog import Table
    from rowsweep.sweeps.late.writers import Writers

Key: TypeAlias = tuple[str, ...]

_BEGIN: Final = "begin isolation level repeatable read, read only"
_HAS_TRANSACTION_TIMEOUT: Final = 170_000
_FIGURES: Final = """
    select pg_catalog.pg_snapshot_xmin(s)::pg_catalog.text::pg_catalog.int8,
           pg_catalog.pg_snapshot_xmax(s)::pg_catalog.text::pg_catalog.int8,
           array(select x::pg_catalog.text::pg_catalog.int8 & 4294967295 from pg_catalog.pg_snapshot_xip(s) x)
      from pg_catalog.pg_current_snapshot() s"""


class EndSnapshot:
    """See the table as it was behind the last page: a key that is not there is of a row that no batch has done.

    It holds the lightest lock on the table, since a rewrite would empty an older snapshot. `writers` are those who were
    open then. Whatever ends its transaction before its time makes it lost: it proves nothing any more.
    """

    def __init__(self, table: Table, signal: RunSignal) -> None:
        self._table = table
        self._signal = signal
        self._ending = ExitStack()
        self._connection: Any = None
        self.is_lost = False
        self.writers: Writers
        self.low = self._high = 0
        self._open: frozenset[int] = frozenset()

    def take(self, place: Lender, settings: Mapping[str, str]) -> bool:
        """Take it on a connection of its own; False where that cannot be had now, and another one be free besides."""
        try:
            with place.spare_connection():
                connection = self._connection = self._ending.enter_context(place.spare_connection())
            self._ending.enter_context(cancel_on_abort(self._signal, connection))
            connection.execute(f"{_BEGIN}; {of_transaction(settings)}", prepare=False)
            if connection.info.server_version >= _HAS_TRANSACTION_TIMEOUT:
                connection.execute("set local transaction_timeout = 0", prepare=False)
            lock = sql.SQL("lock table {} in access share mode").format(self._table.identifier)
            connection.execute(lock.as_string(connection).replace("%%", "%"), prepare=False)
            self.writers = find_writers(connection, self._table)
            self.low, self._high, open_then = self._asked(_FIGURES, {})[0]
            self._open = frozenset(open_then)
        except (psycopg.Error, DriverUnavailable):
            self.give_up()
        return not self.is_lost

    def is_later(self, xid: int) -> bool:
        """Whether a transaction, by the lower half of its id, surely was not over then.

        One of a savepoint that was over inside an open transaction does not show: `missing` tells.
        """
        return xid in self._open or (self._high - xid - 1) & 0xFFFFFFFF >= 0x80000000

    def versions(self, keys: Sequence[Key]) -> dict[Key, int]:
        """Answer who wrote each of these rows as it was then, by the lower half of an id; none for a key not there."""
        table = self._table
        names = [sql.Identifier(f"rs_k{at}") for at in range(len(table.key))]
        lists = sql.SQL(", ").join(
            sql.SQL("pg_catalog.unnest({}::pg_catalog.text[])").format(sql.Placeholder(f"rs_k{at}"))
            for at in range(len(names))
        )
        own = [quoted(table.name, name) for name in table.key]
        asked = sql.SQL(
            "select {texts}, {table}.xmin::pg_catalog.text::pg_catalog.int8 from {table}\n"
            "where ({own}) in (select {casts} from rows from ({lists}) rs_keys ({names}))"
        ).format(
            texts=sql.SQL(", ").join(sql.SQL("{}::pg_catalog.text").format(name) for name in own),
            own=sql.SQL(", ").join(own),
            casts=sql.SQL(", ").join(key_casts(table, names)),
            lists=lists,
            names=sql.SQL(", ").join(names),
            table=table.identifier,
        )
        values = {f"rs_k{at}": [key[at] for key in keys] for at in range(len(names))}
        return {tuple(texts): xid for *texts, xid in self._asked(asked, values)}

    def give_up(self) -> None:
        """End it before its time; raises where the run itself was stopped."""
        self.is_lost = True
        self.close()
        self._signal.raise_if_aborted()

    def close(self) -> None:
        """Give its connection back."""
        connection, self._connection = self._connection, None
        with self._ending:
            if connection is not None and not connection.closed:
                try:
                    connection.execute("rollback", prepare=False)
                except psycopg.Error:
                    connection.close()

    @property
    def is_broken(self) -> bool:
        """Whether its transaction is over."""
        connection = self._connection
        return connection is None or connection.info.transaction_status != TransactionStatus.INTRANS

    @property
    def backend_pid(self) -> int | None:
        """The server process that holds it."""
        return None if self._connection is None else int(self._connection.info.backend_pid)

    def _asked(self, statement: Any, values: Mapping[str, Any]) -> list[Any]:
        return run(self._connection, statement, values).fetchall()
