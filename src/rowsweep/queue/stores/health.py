"""What a driver can say of its own health: figures only; what is wrong with them is judged elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rowsweep.queue.stores.schedules import Leadership
    from rowsweep.telemetry.instruments import Depth


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """The server as this role sees it; a limit is None where there is none.

    `oldest_transaction_seconds` is the age of the oldest snapshot of all sessions, `oldest_transaction_pid` whose.
    """

    now: datetime
    version: str
    is_standby: bool
    connections: int
    max_connections: int | None
    role: str
    role_limit: int | None
    oldest_transaction_seconds: float
    oldest_transaction_pid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """One of the queue's tables, as the server's statistics have it."""

    table: str
    live_rows: int
    dead_rows: int
    vacuumed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The age in seconds of the oldest finished jobs that are still kept, None where there are none.

    `done` is of done and cancelled jobs, `dead` of dead and failed ones.
    """

    done_seconds: float | None
    dead_seconds: float | None


class HealthStore(Protocol):
    """Say how the queue and its server are; each method is one statement that only reads."""

    def server(self) -> ServerFacts:
        """Answer what is known of the server and this role's connections."""

    def depths(self) -> list[Depth]:
        """Count what waits in each queue, and its dead letters."""

    def leaders(self) -> list[Leadership]:
        """Answer every lease of a scheduler, expired ones too, and a session that leads by its advisory lock."""

    def tables(self) -> Sequence[TableFacts]:
        """Answer the queue's tables."""

    def kept(self) -> Kept:
        """Answer how old the oldest finished jobs are."""
