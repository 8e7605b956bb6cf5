"""What surrounds a call: the connected app, the open transaction, and the run it is made in."""

from __future__ import annotations

import getpass
import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import uuid_utils

from rowsweep.errors import DriverUnavailable

if TYPE_CHECKING:
    from rowsweep.jobs.request import EnqueueResult, NewJob


class Enqueuer(Protocol):
    """Where enqueues go: the connected app."""

    actor: str | None

    def enqueue(self, requests: Sequence[NewJob], *, tx: Any = None, outbox: bool = False) -> list[EnqueueResult]:
        """Put the jobs on the queue, all or none, over `tx` where given; with `outbox` by way of the outbox."""


@dataclass(slots=True)
class Surroundings:
    """The run that a call is made in: of which job, its tenant, and by which worker.

    Never changed; one is made for every run.
    """

    job: str
    job_id: object
    tenant: str | None
    worker_id: str | None = None

    @property
    def attribution(self) -> str:
        """What is enqueued in the run says that it comes from there."""
        return f"job:{self.job}:{self.job_id}"


class _Open:
    """A transaction that is ambient, and what was before it; without a connection once it has ended."""

    __slots__ = ("connection", "outer")

    def __init__(self, connection: Any, outer: _Open | None) -> None:
        self.connection = connection
        self.outer = outer


FreshId: TypeAlias = uuid_utils.UUID
"""An id that has just been made, and is no work for the garbage collector."""

fresh_id: Final = uuid_utils.uuid7
_UNKNOWN: Final = uuid.SafeUUID.unknown
# A UUID lets nobody set an attribute, but for its slots themselves.
_set_int: Final = vars(uuid.UUID)["int"].__set__
_set_is_safe: Final = vars(uuid.UUID)["is_safe"].__set__
_enqueuer: Enqueuer | None = None
_run: ContextVar[Surroundings | None] = ContextVar("rowsweep_run", default=None)
_transaction: ContextVar[_Open | None] = ContextVar("rowsweep_transaction", default=None)


def use_enqueuer(enqueuer: Enqueuer | None) -> None:
    """Set where enqueues of this process go; None disconnects."""
    global _enqueuer
    _enqueuer = enqueuer


def enqueuer() -> Enqueuer:
    """Answer where enqueues go; DriverUnavailable before anything is connected."""
    if _enqueuer is None:
        raise DriverUnavailable(
            "Nothing is connected yet: there is no queue to enqueue into.",
            fix='rs.connect("postgresql://…"), or set $DATABASE_URL and call rs.connect(); '
            "in a test rs.connect(driver=MemoryDriver())",
        )
    return _enqueuer


def new_id() -> uuid.UUID:
    """Answer a fresh UUIDv7 (RFC 9562): ids sort by when they were made."""
    return standard_id(fresh_id())


def standard_id(fresh: FreshId) -> uuid.UUID:
    """Answer a fresh id as the standard library's, whose own way of making one takes four times as long."""
    made = object.__new__(uuid.UUID)
    _set_int(made, int.from_bytes(fresh.bytes, "big"))
    _set_is_safe(made, _UNKNOWN)
    return made


def attribution() -> str:
    """Answer who enqueues: the enclosing run, else the app's actor, else `user@host`. Never authority."""
    run = _run.get()
    if run is not None:
        return run.attribution
    actor = None if _enqueuer is None else _enqueuer.actor
    return actor or user_at_host()


@cache
def user_at_host() -> str:
    """Answer `user@host` of this process, as it was when first asked."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def enclosing_tenant() -> str | None:
    """Answer the tenant of the run this call is made in."""
    run = _run.get()
    return None if run is None else run.tenant


def enclosing_worker() -> str | None:
    """Answer the id of the worker whose run, or whose hook, this call is made in."""
    run = _run.get()
    return None if run is None else run.worker_id


def enter_run(surroundings: Surroundings) -> Token[Surroundings | None]:
    """Make a run ambient until `leave_run`: what `inside_run` does, at a third of what a `with` costs."""
    return _run.set(surroundings)


def leave_run(token: Token[Surroundings | None]) -> None:
    """Make ambient again what was before `enter_run`."""
    _run.reset(token)


class inside_run:  # noqa: N801 - reads as what it does in a `with`
    """Make a run ambient for what is called in the block."""

    __slots__ = ("_surroundings", "_token")

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings

    def __enter__(self) -> None:
        self._token = enter_run(self._surroundings)

    def __exit__(self, *_: object) -> None:
        leave_run(self._token)


def open_transaction() -> Any:
    """Answer the connection whose transaction enqueues here join, None where none is open.

    A task or thread that was started in the block has a copy of its context, and may outlive it: by then the
    connection is somebody else's.
    """
    found = _transaction.get()
    while found is not None and found.connection is None:
        found = found.outer
    return None if found is None else found.connection


@contextmanager
def inside_transaction(connection: Any) -> Iterator[None]:
    """Let enqueues in the block join the transaction that is open on this connection."""
    opened = _Open(connection, _transaction.get())
    token = _transaction.set(opened)
    try:
        yield
    finally:
        opened.connection = None
        _transaction.reset(token)
