"""One reading of how a database is: figures only, with None for what this role or server cannot say."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

_KEPT_POSITIONS: Final = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """How far one standby or subscriber is behind: `replayed` is its position in the WAL, in bytes.

    `seconds` is the greater of what the standby reports and of how long ago the primary passed that position: a
    standby that stands still may go on reporting the lag it had.
    """

    name: str
    behind_bytes: int
    replayed: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuum:
    """A vacuum under way: of which table, in schema and name, with the partitioned tables above it."""

    tables: frozenset[tuple[str, str]]
    phase: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one query answered; `failed` says why it did not, and then nothing else is known.

    `sees_all` is whether the role sees other roles' sessions, standbys and vacuums. `archive_bytes` is the WAL that is
    finished and not archived. `waiting` sessions wait for a lock of ours, the longest for `waiting_seconds`. `snapshot`
    is of the oldest transaction of another session that holds one in this database.
    """

    at: float
    failed: str | None = None
    sees_all: bool = False
    is_standby: bool = False
    position: int | None = None
    standbys: int = 0
    replicas: tuple[Replica, ...] = ()
    archives: bool = False
    archive_bytes: int | None = None
    knows_ours: bool = True
    waiting: int = 0
    waiting_seconds: float = 0.0
    active: int = 0
    max_connections: int = 1
    snapshot_seconds: float = 0.0
    snapshot_pid: int | None = None
    vacuums: tuple[Vacuum, ...] = ()


def reading_of(row: Sequence[Any], at: float) -> Reading:
    """Read the question's one row."""
    sees_all, is_standby, position, standbys, replicas, archives, archive_bytes, *rest = row
    waiting, waiting_seconds, active, most, snapshot_seconds, snapshot_pid, vacuums = rest
    return Reading(
        at=at,
        sees_all=sees_all,
        is_standby=is_standby,
        position=None if position is None else int(position),
        standbys=standbys,
        replicas=tuple(_replica(one) for one in replicas),
        archives=archives,
        archive_bytes=None if archive_bytes is None else int(archive_bytes),
        waiting=waiting,
        waiting_seconds=float(waiting_seconds),
        active=active,
        max_connections=most,
        snapshot_seconds=float(snapshot_seconds),
        snapshot_pid=snapshot_pid,
        vacuums=tuple(_vacuum(one) for one in vacuums),
    )


def _replica(one: Mapping[str, Any]) -> Replica:
    return Replica(
        name=one["name"],
        behind_bytes=max(int(one["behind"]), 0),
        replayed=int(one["replayed"]),
        seconds=float(one["seconds"] or 0.0),
    )


def _vacuum(one: Mapping[str, Any]) -> Vacuum:
    return Vacuum(tables=frozenset((schema, name) for schema, name in one["tables"]), phase=one["phase"])


@dataclass(slots=True)
class Positions:
    """When the primary had got where: by it a standby's lag in bytes is also one in seconds."""

    _at: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT_POSITIONS))
    _position: deque[int] = field(default_factory=lambda: deque(maxlen=_KEPT_POSITIONS))

    def note(self, reading: Reading) -> Reading:
        """Note where the primary is, and answer the reading with each standby's seconds filled in."""
        if reading.position is None:
            return reading
        if self._position and reading.position < self._position[-1]:
            self._at.clear()
            self._position.clear()
        self._at.append(reading.at)
        self._position.append(reading.position)
        return replace(reading, replicas=tuple(self._timed(one, reading.at) for one in reading.replicas))

    def _timed(self, one: Replica, now: float) -> Replica:
        if one.behind_bytes == 0:
            return replace(one, seconds=0.0)
        passed = bisect_right(self._position, one.replayed)
        own = now - self._at[passed] if passed < len(self._at) else 0.0
        return replace(one, seconds=max(one.seconds, own))
