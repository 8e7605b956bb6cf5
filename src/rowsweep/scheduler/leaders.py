"""Who may dispatch: one scheduler of all that run over a database."""

from __future__ import annotations

import os
import socket
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from rowsweep.errors import InvalidOption, NotImplementedByDriver
from rowsweep.options import duration
from rowsweep.queue.stores.schedules import Lease
from rowsweep.spelling import spelled

if TYPE_CHECKING:
    from rowsweep.queue.contract import Driver

LEASE_NAME: Final = "scheduler"
_RENEWALS: Final = 3


class Leader(Protocol):
    """Say whether this process leads."""

    @property
    def renew_every(self) -> timedelta:
        """How long an answer may be taken from memory."""

    def acquire(self) -> bool:
        """Take the lead or keep it; say whether it is ours."""

    def release(self) -> None:
        """Give the lead back."""


class SoleLeader:
    """Lead always: for the one scheduler of a deployment."""

    @property
    def renew_every(self) -> timedelta:
        """Answer no time at all: asking costs nothing."""
        return timedelta(0)

    def acquire(self) -> bool:
        """Answer True."""
        return True

    def release(self) -> None:
        """Do nothing."""


@spelled
class LeaseLeader:
    """Lead under an expiring lease of the queue's database, which needs no particular connection.

    A leader that dies is followed when its lease lapses, `lease` after its last renewal. `name` tells the schedulers
    of one application from those of another in the same schema.
    """

    def __init__(
        self,
        driver: Driver,
        *,
        name: str = LEASE_NAME,
        lease: str | timedelta = "30s",
        renew_every: str | timedelta = "10s",
    ) -> None:
        store = driver.control().leader
        if store is None:
            raise NotImplementedByDriver(
                f"the driver {driver.name!r} keeps no leader.",
                fix="leader=SoleLeader(), for the one scheduler of a deployment",
                meta={"driver": driver.name, "feature": "leader"},
            )
        self._store = store
        self._name = name
        self._id = str(uuid.uuid4())
        self._lease = duration(lease, option="lease")
        self._renew_every = duration(renew_every, option="renew_every")
        if self._renew_every <= timedelta(0) or _RENEWALS * self._renew_every > self._lease:
            raise InvalidOption(
                f"{_RENEWALS} renewals must fit in the lease of {self._lease.total_seconds():g} s; "
                f"renew_every is {self._renew_every.total_seconds():g} s.",
                fix='lease="30s", renew_every="10s"',
                meta={"option": "renew_every"},
            )

    @property
    def holder(self) -> str:
        """Answer what the lease is held under: host, process and a fresh id; a forked child's is its own."""
        return f"{socket.gethostname()}:{os.getpid()}:{self._id}"

    @property
    def lease(self) -> Lease:
        """Answer what is asked for: a statement that renews it by itself keeps the lead."""
        return Lease(name=self._name, holder=self.holder, seconds=self._lease.total_seconds())

    @property
    def renew_every(self) -> timedelta:
        """Answer the interval between two renewals."""
        return self._renew_every

    def acquire(self) -> bool:
        """Take the lease where it is free or has expired, or renew it; one statement."""
        return self._store.acquire(self._name, self.holder, lease_seconds=self._lease.total_seconds())

    def release(self) -> None:
        """Give the lease back, so that another need not wait for its end."""
        self._store.release(self._name, self.holder)


@spelled
class AdvisoryLockLeader:
    """Lead while a session of the database holds an advisory lock, on a dedicated connection.

    It ends with its connection, so a leader that dies is followed as soon as the server notices. Raises InvalidOption
    with `pooler=True`, NotImplementedByDriver where the driver has no sessions. Five askings a minute leave room for
    the fold of the counters, which no lease's renewal carries here.
    """

    def __init__(self, driver: Driver, key: str = LEASE_NAME, *, renew_every: str | timedelta = "12s") -> None:
        if not hasattr(driver, "advisory_lock"):
            raise NotImplementedByDriver(
                f"the driver {driver.name!r} has no sessions whose lock could be held.",
                fix="LeaseLeader(driver)",
                meta={"driver": driver.name, "feature": "advisory_lock"},
            )
        self._lock = cast("Any", driver).advisory_lock(key)
        self._renew_every = duration(renew_every, option="renew_every")

    @property
    def renew_every(self) -> timedelta:
        """Answer how often the connection is asked whether it still lives."""
        return self._renew_every

    def acquire(self) -> bool:
        """Take the lock, or make sure that it is still held."""
        return bool(self._lock.acquire())

    def release(self) -> None:
        """Give the lock back and close its connection."""
        self._lock.release()
