"""Events that runs wait for: what is kept of one, and the store that keeps them."""

from __future__ import annotations

import builtins
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from rowsweep.options import instant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rowsweep.jobs.values.json_form import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One published event; `key` correlates it with the waits that ask for that key, None with those without one."""

    id: UUID
    name: str
    key: str | None
    payload: Any
    published_at: datetime
    expires_at: datetime

    def as_json(self) -> dict[str, Any]:
        """Answer the record as a step keeps it."""
        instants = {name: getattr(self, name).isoformat() for name in ("published_at", "expires_at")}
        return {**asdict(self), "id": str(self.id), **instants}

    @classmethod
    def of(cls, form: Mapping[str, Any]) -> Event:
        """Answer the event whose record a step kept."""
        kept = {entry.name: form[entry.name] for entry in fields(cls)}
        instants = {name: datetime.fromisoformat(kept[name]) for name in ("published_at", "expires_at")}
        return cls(**{**kept, "id": UUID(kept["id"]), **instants})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """Publish one event; the database stamps when, and counts its time to live from there."""

    id: UUID
    name: str
    key: str | None
    payload: Json
    ttl_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What was published, and the queues of the parked runs that it made due."""

    event: Event
    due_queues: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWait:
    """Ask under a claim whether an event has come; asked for the first time, the wait begins.

    `since` moves the instant from which events count back, `timeout_seconds=None` waits without end.
    """

    run_id: UUID
    name: str
    event: str
    key: str | None
    timeout_seconds: float | None
    since: datetime | None = None


def check_instant(given: object, *, option: str) -> datetime:
    """Refuse what is not an aware instant: events are compared on the database's clock."""
    return instant(given, option=option, works="rs.event_bus().now()")


class EventStore(Protocol):
    """Keep events until they expire; every instant is the database's."""

    def publish(self, event: NewEvent) -> Published:
        """Store the event and make every run parked on its name and key due, in one statement.

        Job rows are locked in id order and those that another transaction has are skipped. A run that is about to
        park on it is due as soon as it has parked.
        """

    def find(self, name: str, *, key: str | None = None, since: datetime) -> Event | None:
        """Answer the earliest live event of this name and key that was published at or after an instant."""

    def list(self, *, name: str | None = None, key: str | None = None, limit: int = 1_000) -> builtins.list[Event]:
        """Answer live events, newest first; a name or key of None means any."""

    def purge_expired(self, at: datetime | None = None) -> int:
        """Delete what had expired at an instant, by default now; answer how many there were."""

    def now(self) -> datetime:
        """Answer the clock that every event and wait is stamped by."""
