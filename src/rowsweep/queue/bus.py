"""Publishing events: the bus of this process, and the one function that applications call."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from rowsweep.errors import DriverUnavailable, InvalidOption, NotImplementedByDriver
from rowsweep.jobs import ambient
from rowsweep.jobs.limits import check_length
from rowsweep.jobs.request import check_text
from rowsweep.jobs.values.json_form import NoJsonForm, json_form
from rowsweep.options import row_count
from rowsweep.queue.stores.events import NewEvent, check_instant
from rowsweep.spelling import spelled

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowsweep.queue.contract import Driver, Stores
    from rowsweep.queue.stores.events import Event, EventStore

EVENT_TTL: Final = timedelta(hours=24)
EVENTS_PURGE_TARGET: Final = "rowsweep-events"
LIST_LIMIT: Final = 1_000


@spelled
class EventBus:
    """Publish and find events over a driver; it has no clock of its own.

    `default_ttl` is how long an event is kept that names no `ttl`; `list_limit` is how many `list` answers.
    `published` is called with the queues of the runs that a publication made due, outside any transaction.
    """

    def __init__(
        self,
        driver: Driver,
        *,
        default_ttl: str | timedelta = EVENT_TTL,
        list_limit: int = LIST_LIMIT,
        published: Callable[[list[str]], None] | None = None,
    ) -> None:
        self._driver = driver
        self._ttl = check_length(default_ttl, option="default_ttl") or EVENT_TTL
        self._list_limit = row_count(list_limit, option="list_limit")
        self._published = published

    def publish(
        self,
        name: str,
        payload: object = None,
        *,
        key: str | None = None,
        ttl: str | timedelta | None = None,
        tx: Any = None,
    ) -> Event:
        """Publish an event: every run that waits for its name and key goes on, now or when it gets to its wait.

        In the transaction of `tx`, or the ambient one, it is published by that commit, and never if it rolls back.
        Raises InvalidOption for a payload without a JSON form, and for a `tx` that leads to another database.
        """
        event = self._new(name, payload, key, ttl)
        joined = self._joined(tx)
        answer = _events(self._driver, self._driver.stores() if joined is None else joined).publish(event)
        if joined is None and self._published is not None:
            self._published(answer.due_queues)
        return answer.event

    def find(self, name: str, *, key: str | None = None, since: datetime) -> Event | None:
        """Answer the earliest live event of this name and key published at or after an instant of this bus's clock."""
        return self._store().find(name, key=key, since=check_instant(since, option="since"))

    def list(self, *, name: str | None = None, key: str | None = None) -> builtins.list[Event]:
        """Answer live events, newest first, up to the bus's limit; a name or key of None means any."""
        return self._store().list(name=name, key=key, limit=self._list_limit)

    def purge_expired(self, at: datetime | None = None) -> int:
        """Delete the events that had expired at an instant, by default now; answer how many there were."""
        return self._store().purge_expired(None if at is None else check_instant(at, option="at"))

    def now(self) -> datetime:
        """Answer the clock that events and waits are stamped by."""
        return self._store().now()

    def _new(self, name: str, payload: object, key: str | None, ttl: str | timedelta | None) -> NewEvent:
        try:
            form = json_form(payload)
        except NoJsonForm as error:
            raise InvalidOption(
                f"The payload of the event {name!r} cannot be stored at {error.path}: {error.why}.",
                fix="publish plain data, or a reference to it",
                meta={"option": "payload", "path": error.path},
            ) from error
        return NewEvent(
            id=ambient.new_id(),
            name=check_text(name, option="name"),
            key=None if key is None else check_text(key, option="key"),
            payload=form,
            ttl_seconds=(check_length(ttl, option="ttl") or self._ttl).total_seconds(),
        )

    def _joined(self, tx: Any) -> Stores | None:
        """Answer the stores over the caller's transaction, None where there is none."""
        connection = tx if tx is not None else ambient.open_transaction()
        is_home = getattr(self._driver, "is_home", None)
        if connection is not None and is_home is not None and not is_home(connection):
            raise InvalidOption(
                f"the transaction is of another database than the events' ({self._driver.place}): "
                "they could not commit with it.",
                fix="pass a connection of the queue's database, or publish outside the transaction",
                meta={"option": "tx"},
            )
        return None if connection is None else self._driver.join(connection)

    def _store(self) -> EventStore:
        return _events(self._driver, self._driver.stores())


class PurgeTarget(Protocol):
    """Something that a purge empties of what has expired."""

    @property
    def name(self) -> str:
        """What the purge's result calls it."""

    def purge_expired(self, at: datetime | None = None) -> int:
        """Delete what had expired at an instant; answer how many there were."""


@dataclass(frozen=True, slots=True)
class _EventsTarget:
    bus: EventBus

    @property
    def name(self) -> str:
        return EVENTS_PURGE_TARGET

    def purge_expired(self, at: datetime | None = None) -> int:
        return self.bus.purge_expired(at)


@spelled
def events_purge_target(bus: EventBus) -> PurgeTarget:
    """Make a bus a target of a purge: without one its events are kept for ever."""
    return _EventsTarget(bus)


_bus: EventBus | None = None


def event_bus() -> EventBus:
    """Answer the bus that this process publishes over; DriverUnavailable before anything is connected."""
    if _bus is None:
        raise DriverUnavailable(
            "Nothing is connected yet: there is nowhere to publish to.",
            fix='rs.connect("postgresql://…"); in a test rs.reset_event_bus()',
        )
    return _bus


@spelled
def use_event_bus(bus: EventBus | None) -> None:
    """Set the bus that this process publishes over; `connect()` sets its driver's own."""
    global _bus
    _bus = bus


@spelled
def publish_event(
    name: str, payload: object = None, *, key: str | None = None, ttl: str | timedelta | None = None, tx: Any = None
) -> Event:
    """Publish an event over this process's bus: runs that wait for its name and key go on.

    `payload` is anything with a JSON form. `key` correlates it: a wait with a key gets only events of that key, one
    without only those without. It is kept for `ttl` (24 h). In the transaction of `tx`, or inside
    `rs.transaction()`, it is published by that commit.
    """
    return event_bus().publish(name, payload, key=key, ttl=ttl, tx=tx)


def _events(driver: Driver, stores: Stores) -> EventStore:
    if stores.events is None:
        raise NotImplementedByDriver(
            f"the driver {driver.name!r} keeps no events.",
            fix='rs.connect("postgresql://…"), or MemoryDriver() in a test',
            meta={"driver": driver.name, "feature": "events"},
        )
    return stores.events
