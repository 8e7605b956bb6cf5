"""The driver's two pools, opened at first use and again after a fork."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool

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
from rowsweep.queue.postgres.lender import TURN_SECONDS, Lender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# A pool gives up on a connection after this long and starts anew with the next request. Its pauses double from a
# second on, and whoever waits has paused already: work must go on within five seconds of the server's return.
_RECONNECT_SECONDS: Final = 2.0
# Of a role's limit one connection is for the wake, and one for what is asked outside the pools.
_BESIDES: Final = 2
# The claim loop's and the settler's.
_KEPT: Final = 2
LEAST_ROOM: Final = 4
_inherited: list[object] = []


@dataclass(slots=True)
class _Opened:
    """The pools of one process."""

    pid: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    work: Lender | None = None
    control: Lender | None = None


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
        lender = self.lender(control=False)
        wait_seconds = TURN_SECONDS if spare else None
        with self._lend(lender, partial(forget, pooler=self._pooler), wait_seconds) as connection, lender.told(wanted):
            yield connection

    @contextmanager
    def call(self, *, control: bool) -> Iterator[SweepConnection]:
        """Lend a connection for the package's own statements only."""
        with self._lend(self.lender(control=control), is_idle) as connection:
            yield connection

    def lender(self, *, control: bool) -> Lender:
        """Answer who lends the connections of a pool, which is opened at its first use."""
        opened = self._here()
        with opened.lock:
            if control:
                opened.control = opened.control or self._open("rowsweep-control", self._sizes()[1], control=True)
                return opened.control
            opened.work = opened.work or self._open("rowsweep-work", self._sizes()[0], control=False)
            return opened.work

    def reserve(self, bodies: int) -> None:
        """Let the work pool grow to a connection for each of so many bodies, and two for the application's calls.

        Raises DriverUnavailable where the role may hold too few to work with.
        """
        self._refuse_too_few()
        opened = self._here()
        with opened.lock:
            self._work_size = max(self._work_size, bodies + 2)
            if opened.work is not None:
                opened.work.resize(self._sizes()[0])

    def close(self) -> None:
        """Close this process's pools; the next use opens new ones."""
        opened, self._opened = self._opened, _Opened(os.getpid())
        if opened.pid != os.getpid():
            _inherited.append(opened)
            return
        for lender in (opened.work, opened.control):
            if lender is not None:
                lender.close()

    @contextmanager
    def _lend(
        self, lender: Lender, may_return: Callable[[SweepConnection], bool], wait_seconds: float | None = None
    ) -> Iterator[SweepConnection]:
        connection = lender.take(wait_seconds)
        try:
            yield connection
        finally:
            lender.give(connection, is_fit=may_return(connection))

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

    def _open(self, name: str, size: int, *, control: bool) -> Lender:
        pool = ConnectionPool(
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
        return Lender(
            pool,
            wait_seconds=self._connections.wait_seconds,
            place=self.place,
            refuse_unreachable=self._refuse_unreachable,
            keep=_KEPT if control else 0,
        )


def is_idle(connection: SweepConnection) -> bool:
    """Say whether a connection is open and in no transaction: where it is closed, its status is not known."""
    return connection.pgconn.transaction_status == TransactionStatus.IDLE
