"""The signals there are: how each is measured from a reading, and its limits where nobody says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rowsweep.sweeps.health.limits import COUNT, DURATION, FACTOR, SHARE, SIZE, SWITCH, Limits, Unit
from rowsweep.sweeps.health.reading import Reading, Replica

_MB: Final = 1024**2
_UNSEEN: Final = "the role may not see it: grant pg_monitor to it"
_NO_STANDBY: Final = "no standby is connected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What the pass knows itself: the tables it works on, and how many times as long its batches take as they did."""

    tables: frozenset[tuple[str, str]] = frozenset()
    times_as_long: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """A signal's value and how it reads behind "waiting for"; without a value, why it is unknown."""

    value: float | None
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One signal: its unit, its default limits (None: only where asked for), and how it is measured."""

    unit: Unit
    default: Limits | None
    measure: Callable[[Reading, Own, Limits], Measured]


def _replicas(reading: Reading, limits: Limits) -> list[Replica] | str:
    """Answer the standbys that count, or why there is nothing to say of them."""
    if not reading.standbys:
        return _NO_STANDBY
    if not reading.sees_all:
        return _UNSEEN
    return [one for one in reading.replicas if one.name not in limits.ignore] or _NO_STANDBY


def _lag(reading: Reading, _: Own, limits: Limits) -> Measured:
    found = _replicas(reading, limits)
    if isinstance(found, str):
        return Measured(None, found)
    last = max(found, key=lambda one: one.seconds)
    return Measured(last.seconds, f"replica {last.name!r}, {DURATION.shown(last.seconds)} behind")


def _lag_bytes(reading: Reading, _: Own, limits: Limits) -> Measured:
    found = _replicas(reading, limits)
    if isinstance(found, str):
        return Measured(None, found)
    last = max(found, key=lambda one: one.behind_bytes)
    return Measured(float(last.behind_bytes), f"replica {last.name!r}, {SIZE.shown(last.behind_bytes)} behind")


def _archive(reading: Reading, _: Own, __: Limits) -> Measured:
    if not reading.archives:
        return Measured(None, "the server archives no WAL")
    if reading.archive_bytes is None:
        return Measured(None, "nothing was archived since the statistics were reset")
    return Measured(
        float(reading.archive_bytes), f"the WAL archive, {SIZE.shown(reading.archive_bytes)} not archived yet"
    )


def _lock_waits(reading: Reading, _: Own, __: Limits) -> Measured:
    if not reading.knows_ours:
        return Measured(None, "behind a pooler nobody knows which backends are ours")
    several = "1 session that waits" if reading.waiting == 1 else f"{reading.waiting} sessions that wait"
    longest = DURATION.shown(reading.waiting_seconds)
    return Measured(reading.waiting_seconds, f"{several} for this sweep's locks, for up to {longest}")


def _waiting_sessions(reading: Reading, own: Own, limits: Limits) -> Measured:
    measured = _lock_waits(reading, own, limits)
    return measured if measured.value is None else Measured(float(reading.waiting), measured.words)


def _active(reading: Reading, _: Own, __: Limits) -> Measured:
    if not reading.sees_all:
        return Measured(None, _UNSEEN)
    return Measured(float(reading.active), f"{reading.active} active sessions")


def _active_share(reading: Reading, own: Own, limits: Limits) -> Measured:
    measured = _active(reading, own, limits)
    if measured.value is None:
        return measured
    return Measured(measured.value / reading.max_connections, f"{measured.words} of {reading.max_connections}")


def _snapshot(reading: Reading, _: Own, __: Limits) -> Measured:
    if not reading.sees_all:
        return Measured(None, _UNSEEN)
    held = f", held by pid {reading.snapshot_pid}" if reading.snapshot_pid is not None else ""
    return Measured(
        reading.snapshot_seconds, f"the oldest snapshot, {DURATION.shown(reading.snapshot_seconds)} old{held}"
    )


def _vacuum(reading: Reading, own: Own, _: Limits) -> Measured:
    for vacuum in reading.vacuums:
        if table := next(iter(sorted(vacuum.tables & own.tables)), None):
            phase = f" ({vacuum.phase})" if vacuum.phase else ""
            return Measured(1.0, f"the vacuum of {'.'.join(table)}{phase}")
    if any(not vacuum.tables for vacuum in reading.vacuums):
        return Measured(None, _UNSEEN)
    return Measured(0.0, "no vacuum")


def _batch_times(_: Reading, own: Own, __: Limits) -> Measured:
    if own.times_as_long is None:
        return Measured(None, "too few batches yet")
    return Measured(own.times_as_long, f"batches that take {FACTOR.shown(own.times_as_long)} as before")


KINDS: Final[dict[str, Kind]] = {
    "replica_lag": Kind(unit=DURATION, default=Limits(slow=5.0, hold=10.0), measure=_lag),
    "replica_lag_bytes": Kind(unit=SIZE, default=Limits(slow=512.0 * _MB, hold=1024.0 * _MB), measure=_lag_bytes),
    "archive_backlog": Kind(unit=SIZE, default=Limits(slow=1024.0 * _MB, hold=4096.0 * _MB), measure=_archive),
    "lock_waits": Kind(unit=DURATION, default=Limits(slow=0.5, hold=1.0), measure=_lock_waits),
    "waiting_sessions": Kind(unit=COUNT, default=Limits(slow=5.0, hold=10.0), measure=_waiting_sessions),
    "active_share": Kind(unit=SHARE, default=Limits(slow=0.5, hold=0.8), measure=_active_share),
    "active_sessions": Kind(unit=COUNT, default=None, measure=_active),
    "oldest_snapshot": Kind(unit=DURATION, default=Limits(slow=600.0), measure=_snapshot),
    "vacuum": Kind(unit=SWITCH, default=Limits(slow=1.0), measure=_vacuum),
    "batch_times": Kind(unit=FACTOR, default=Limits(slow=4.0), measure=_batch_times),
}
