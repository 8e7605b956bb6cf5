"""The driver's two pools, opened at first use and again after a fork."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from rowsweep.clock import real_monotonic
from rowsweep.errors import DriverUnavailable
from rowsweep.queue.postgres.connections import (
    Connections,
    SweepConnection,
    check_open,
    configure,
    connect_once,
    forget,
    full_dsn,
)
from rowsweep.queue.postgres.translate import unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Pool = ConnectionPool[SweepConnection]

# A pool gives up on a connection after this long and starts anew with the next request. Its pauses double from a
# second on, and whoever waits has paused already: work must go on within five seconds of the server's return.
_RECONNECT_SECONDS: Final = 2.0
_TURN_SECONDS: Final = 1.0
# Of a role's limit one connection is for the wake, and one for what is asked outside the pools.
_BESIDES: Final = 2
LEAST_ROOM: Final = 4
_inherited: list[object] = []


@dataclass(slots=True)
class _Opened:
    """The pools of one process."""

    pid: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    work: Pool | None = None
    control: Pool | None = None
    holders: list[Callable[[], None]] = field(default_factory=list)


class Pools:
    """Hold `work` for bodies and the application's calls, and `control` that no body can use up."""

    def __init__(
        self, connections: Connections, *, pooler: bool, role_limit: Callable[[], int | None] = lambda: None
    ) -> None:
        self._connections = connections
        self._role_limit = role_limit
        self._place = connections.place
        self._pooler = pooler
        self._work_size = connections.work
        self._opened = _Opened(os.getpid())

    @property
    def place(self) -> str:
        """Answer where the pools lead, without a password."""
        return self._place

    @property
    def pooler(self) -> bool:
        """Say whether a transaction pooler stands between."""
        return self._pooler

    @contextmanager
    def work(self, wanted: Callable[[], None] | None = None, *, spare: bool = False) -> Iterator[SweepConnection]:
        """Lend a connection of the work pool; a body has had it in its hands, so it is set up again afterwards.

        Whoever keeps it for long is told by `wanted`, from any thread, that others wait for one. A `spare` one is not
        waited for longer than a new one takes to open.
        """
        wait_seconds = _TURN_SECONDS if spare else self._connections.wait_seconds
        with (
            self._lend(self._work_pool(), partial(forget, pooler=self._pooler), wait_seconds) as connection,
            self._told(wanted),
        ):
            yield connection

    @contextmanager
    def call(self, *, control: bool) -> Iterator[SweepConnection]:
        """Lend a connection for the package's own statements only."""
        pool = self._control_pool() if control else self._work_pool()
        with self._lend(pool, _is_idle, self._connections.wait_seconds) as connection:
            yield connection

    def reserve(self, bodies: int) -> None:
        """Let the work pool grow to a connection for each of so many bodies, and two for the application's calls.

        Raises DriverUnavailable where the role may hold too few to work with.
        """
        self._refuse_too_few()
        opened = self._here()
        with opened.lock:
            self._work_size = max(self._work_size, bodies + 2)
            if opened.work is not None:
                opened.work.resize(min_size=0, max_size=self._sizes()[0])

    def close(self) -> None:
        """Close this process's pools; the next use opens new ones."""
        opened, self._opened = self._opened, _Opened(os.getpid())
        if opened.pid != os.getpid():
            _inherited.append(opened)
            return
        for pool in (opened.work, opened.control):
            if pool is not None:
                pool.close(timeout=5)

    @contextmanager
    def _told(self, wanted: Callable[[], None] | None) -> Iterator[None]:
        holders = self._here().holders
        if wanted is None:
            yield
            return
        holders.append(wanted)
        try:
            yield
        finally:
            holders.remove(wanted)

    @contextmanager
    def _lend(
        self, pool: Pool, may_return: Callable[[SweepConnection], bool], wait_seconds: float
    ) -> Iterator[SweepConnection]:
        connection = self._take(pool, wait_seconds)
        try:
            yield connection
        finally:
            if not may_return(connection):
                connection.close()
            pool.putconn(connection)

    def _take(self, pool: Pool, wait_seconds: float) -> SweepConnection:
        """Ask in short turns: each one makes a pool that had given up on the server try it again."""
        give_up_at = real_monotonic() + wait_seconds
        while True:
            if not _has_room(pool):
                self._ask_back(pool)
            try:
                return pool.getconn(timeout=_TURN_SECONDS)
            except PoolClosed as error:
                raise unreachable(self.place, "its connections were closed") from error
            except PoolTimeout as error:
                self._ask_back(pool)  # other processes may have what this one's could grow by
                is_late = real_monotonic() > give_up_at
                self._refuse_unreachable(is_waiting=pool.get_stats()["pool_size"] > 0 and not is_late)
                if is_late:
                    raise unreachable(
                        self.place, f"all {pool.max_size} connections of {pool.name} are in use"
                    ) from error

    def _ask_back(self, pool: Pool) -> None:
        """Tell all who hold one of `work` that somebody waits; on this very thread it is given back at once."""
        opened = self._here()
        for wanted in list(opened.holders) if pool is opened.work else ():
            wanted()

    def _refuse_unreachable(self, *, is_waiting: bool) -> None:
        """Refuse where the server cannot be reached; one without room only where no connection can come back."""
        try:
            connect_once(self._connections.dsn, self.place).close()
        except DriverUnavailable as error:
            if not (is_waiting and "full" in error.meta):
                raise

    def _refuse_too_few(self) -> None:
        """Refuse bodies where claims, settles, the wake and a body could not each have a connection."""
        limit = self._role_limit()
        if limit is not None and limit < LEAST_ROOM:
            raise DriverUnavailable(
                f"the role that connects to {self.place} may hold {limit} connections; a worker needs {LEAST_ROOM}.",
                fix="alter role … connection limit 20; rowsweep doctor says how many are in use",
                meta={"place": self.place, "limit": limit},
            )

    def _sizes(self) -> tuple[int, int]:
        """Answer the most connections of `work` and of `control`, which share what the role may hold."""
        limit = self._role_limit()
        if limit is None:
            return self._work_size, self._connections.control
        room = max(limit - _BESIDES, 1)
        control = min(self._connections.control, max(room // 2, 1))
        return max(min(self._work_size, room - control), 1), control

    def _here(self) -> _Opened:
        """Answer this process's pools; a parent's are kept alive untouched, since their sockets are shared with it."""
        if self._opened.pid != os.getpid():
            _inherited.append(self._opened)
            self._opened = _Opened(os.getpid())
        return self._opened

    def _work_pool(self) -> Pool:
        opened = self._here()
        with opened.lock:
            opened.work = opened.work or self._open("rowsweep-work", self._sizes()[0], control=False)
            return opened.work

    def _control_pool(self) -> Pool:
        opened = self._here()
        with opened.lock:
            opened.control = opened.control or self._open("rowsweep-control", self._sizes()[1], control=True)
            return opened.control

    def _open(self, name: str, size: int, *, control: bool) -> Pool:
        return ConnectionPool(
            full_dsn(self._connections.dsn),
            connection_class=SweepConnection,
            kwargs={"autocommit": True},
            configure=partial(configure, control=control, pooler=self._pooler),
            check=check_open,
            min_size=0,
            max_size=size,
            name=name,
            reconnect_timeout=_RECONNECT_SECONDS,
            num_workers=1,
            open=True,
        )


def _has_room(pool: Pool) -> bool:
    stats = pool.get_stats()
    return stats["pool_available"] > 0 or stats["pool_size"] < stats["pool_max"]


def _is_idle(connection: SweepConnection) -> bool:
    return not connection.closed and connection.info.transaction_status is TransactionStatus.IDLE
