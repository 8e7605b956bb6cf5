"""Lending the connections of one pool."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from rowsweep.clock import real_monotonic
from rowsweep.queue.postgres.connections import SweepConnection, check_open
from rowsweep.queue.postgres.translate import unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Pool = ConnectionPool[SweepConnection]

TURN_SECONDS: Final = 1.0
_KEEP_SECONDS: Final = 60.0


class Lender:
    """Lend a pool's connections, and keep up to `keep` of them at hand from one borrower to the next.

    What is kept goes by the pool, whose own way costs as much as a small statement. It counts as lent there: whoever
    has to ask the pool looks here first, and what is given back while somebody waits goes to the pool, as does what
    was kept for a minute, since the pool says how old a connection may get.
    """

    def __init__(
        self, pool: Pool, *, wait_seconds: float, place: str, refuse_unreachable: Callable[..., None], keep: int
    ) -> None:
        self._pool = pool
        self._wait_seconds = wait_seconds
        self._place = place
        self._refuse_unreachable = refuse_unreachable
        self._keep = keep
        self._lock = threading.Lock()
        self._kept: list[SweepConnection] = []
        self._asking = 0
        self._holders: list[Callable[[], None]] = []

    def take(self, wait_seconds: float | None = None) -> SweepConnection:
        """Answer a connection that is open; DriverUnavailable where none is free within the seconds, or to be had."""
        connection = self._taken_up() if self._kept else None
        return connection or self._asked_for(self._wait_seconds if wait_seconds is None else wait_seconds)

    @contextmanager
    def told(self, wanted: Callable[[], None] | None) -> Iterator[None]:
        """Tell one who keeps a connection for the block, from any thread, that others wait for one."""
        if wanted is None:
            yield
            return
        self._holders.append(wanted)
        try:
            yield
        finally:
            self._holders.remove(wanted)

    def give(self, connection: SweepConnection, *, is_fit: bool) -> None:
        """Take a connection back; one that is not fit to be lent again is closed."""
        if not is_fit:
            connection.close()
        elif len(self._kept) < self._keep and real_monotonic() - connection.taken_at < _KEEP_SECONDS:
            self._kept.append(connection)
            if not self._asking and self._keep:
                return
            # Somebody began to wait meanwhile, or this was closed; either may have found it here already.
            taken = self._popped()
            if taken is None:
                return
            connection = taken
        self._pool.putconn(connection)

    def resize(self, size: int) -> None:
        """Let there be so many connections at most."""
        self._pool.resize(min_size=0, max_size=size)

    def close(self) -> None:
        """Close what is not lent now, and the rest as it comes back; waits 5 s at most for the pool's own threads."""
        self._keep = 0
        while (connection := self._popped()) is not None:
            self._pool.putconn(connection)
        self._pool.close(timeout=5)

    def _popped(self) -> SweepConnection | None:
        try:
            return self._kept.pop()
        except IndexError:
            return None

    def _taken_up(self) -> SweepConnection | None:
        while (connection := self._popped()) is not None:
            try:
                check_open(connection)
            except psycopg.OperationalError:
                self._pool.putconn(connection)
            else:
                return connection
        return None

    def _asked_for(self, wait_seconds: float) -> SweepConnection:
        """Ask in short turns: each one makes a pool that had given up on the server try it again."""
        with self._lock:
            self._asking += 1
        try:
            give_up_at = real_monotonic() + wait_seconds
            while True:
                connection = (self._taken_up() if self._kept else None) or self._turn(give_up_at)
                if connection is not None:
                    connection.taken_at = real_monotonic()
                    return connection
        finally:
            with self._lock:
                self._asking -= 1

    def _turn(self, give_up_at: float) -> SweepConnection | None:
        if self._holders and not self._has_room():
            self._ask_back()
        try:
            return self._pool.getconn(timeout=TURN_SECONDS)
        except PoolClosed as error:
            raise unreachable(self._place, "its connections were closed") from error
        except PoolTimeout as error:
            self._ask_back()  # other processes may have what this one's could grow by
            is_late = real_monotonic() > give_up_at
            self._refuse_unreachable(is_waiting=self._pool.get_stats()["pool_size"] > 0 and not is_late)
            if is_late:
                told = f"all {self._pool.max_size} connections of {self._pool.name} are in use"
                raise unreachable(self._place, told) from error
            return None

    def _has_room(self) -> bool:
        stats = self._pool.get_stats()
        return stats["pool_available"] > 0 or stats["pool_size"] < stats["pool_max"]

    def _ask_back(self) -> None:
        """Tell all who hold one for long that somebody waits; on this very thread it is given back at once."""
        for wanted in list(self._holders):
            wanted()
