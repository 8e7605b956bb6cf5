"""Signals as they are declared: `health=` takes them beside an application's own functions."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from rowsweep.spelling import spelled
from rowsweep.sweeps.health.kinds import KINDS, Measured, Own
from rowsweep.sweeps.health.limits import Limits, limits_of
from rowsweep.sweeps.health.reading import Reading

HealthCheck = Callable[[], str | None]
Health = HealthCheck | Sequence[HealthCheck] | Literal["on", "off"] | None
Level = Literal["ok", "slow", "hold", "unknown"]

_seen: contextvars.ContextVar[tuple[Reading, Own] | None] = contextvars.ContextVar("rowsweep_health", default=None)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a signal or a function says: how grave it is, and the words that follow "waiting for"."""

    name: str
    level: Level
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One built-in signal with its limits; called as a function it answers None or the reason to wait.

    Called inside an application's own health function it goes by the reading that the sweep goes by; elsewhere it asks
    the connected database.
    """

    name: str
    limits: Limits

    def __call__(self) -> str | None:
        """Answer None, or the reason to wait."""
        reading, own = _seen.get() or (_read_here(), Own())
        verdict = self.judge(reading, own)
        return verdict.words if verdict.level == "hold" else None

    def judge(self, reading: Reading, own: Own) -> Verdict:
        """Say how grave it is."""
        kind, limits = KINDS[self.name], self.limits
        if reading.failed is not None and self.name != "batch_times":
            return Verdict(self.name, "unknown", reading.failed)
        measured = kind.measure(reading, own, limits)
        if measured.value is None:
            return Verdict(self.name, "unknown", measured.words)
        for level, limit in (("hold", limits.hold), ("slow", limits.slow)):
            if limit is not None and measured.value >= limit:
                return Verdict(self.name, "hold" if level == "hold" else "slow", self._over(measured, limit))
        return Verdict(self.name, "ok", measured.words)

    def _over(self, measured: Measured, limit: float) -> str:
        shown = KINDS[self.name].unit.shown(limit)
        return measured.words if shown == "any" else f"{measured.words} (limit {shown})"


@contextmanager
def seeing(reading: Reading, own: Own) -> Iterator[None]:
    """Let signals that are called inside go by this reading."""
    token = _seen.set((reading, own))
    try:
        yield
    finally:
        _seen.reset(token)


def _read_here() -> Reading:
    from rowsweep.sweeps.health.sampler import read_once
    from rowsweep.sweeps.run import host

    return read_once(host().driver, ())


def default_signals() -> list[Signal]:
    """Answer the signals that `health="on"` stands for, to add functions of your own to."""
    return [Signal(name=name, limits=kind.default) for name, kind in KINDS.items() if kind.default is not None]


def signal_of(name: str, value: object) -> Signal:
    """Make a signal from its name and what an operator writes as its limits."""
    return Signal(name=name, limits=limits_of(value, KINDS[name].unit, option=name))


@spelled
def replica_lag_below(
    limit: str | timedelta, *, slow: str | timedelta | None = None, ignore: Sequence[str] = ()
) -> Signal:
    """Wait while a standby or logical subscriber is `limit` behind or more; slow down from `slow` (half of it) on.

    `ignore` names those that are behind on purpose (`recovery_min_apply_delay`), by their `application_name`. Needs
    pg_monitor where a standby is connected: unknown without.
    """
    return _signal("replica_lag", limit, slow, ignore)


@spelled
def replica_lag_bytes_below(limit: str, *, slow: str | None = None, ignore: Sequence[str] = ()) -> Signal:
    """Wait while a standby has `limit` ("1GB") of WAL still to replay; slow down from `slow` (half of it) on."""
    return _signal("replica_lag_bytes", limit, slow, ignore)


@spelled
def archive_backlog_below(limit: str, *, slow: str | None = None) -> Signal:
    """Wait while `limit` ("4GB") of finished WAL is not archived yet; slow down from `slow` (half of it) on."""
    return _signal("archive_backlog", limit, slow)


@spelled
def lock_waits_below(limit: str | timedelta, *, slow: str | timedelta | None = None) -> Signal:
    """Wait once a session has waited `limit` for a lock of this process's sweeps; slow down from `slow` (half) on."""
    return _signal("lock_waits", limit, slow)


@spelled
def waiting_sessions_below(n: int, *, slow: int | None = None) -> Signal:
    """Wait while `n` sessions or more wait for locks of this process's sweeps; slow down from `slow` (half) on."""
    return _signal("waiting_sessions", n, slow)


@spelled
def active_sessions_below(n: int | str, *, slow: int | str | None = None) -> Signal:
    """Wait while `n` other sessions or more are active; "80%" is a share of `max_connections`. Needs pg_monitor."""
    return _signal("active_share" if isinstance(n, str) else "active_sessions", n, slow)


@spelled
def oldest_snapshot_below(limit: str | timedelta, *, slow: str | timedelta | None = None) -> Signal:
    """Wait while another session's snapshot in this database is `limit` old or more. Needs pg_monitor."""
    return _signal("oldest_snapshot", limit, slow)


@spelled
def vacuum_idle(*, hold: bool = False) -> Signal:
    """Slow down, or with `hold` wait, while the swept table is vacuumed. Needs pg_monitor."""
    return signal_of("vacuum", "hold" if hold else "slow")


@spelled
def batch_times_below(factor: float, *, slow: float | None = None) -> Signal:
    """Wait once batches take `factor` times as long as they did before; slow down from `slow` (`factor`) on."""
    return signal_of("batch_times", {"hold": factor, "slow": factor if slow is None else slow})


def _signal(name: str, limit: Any, slow: Any, ignore: Sequence[str] = ()) -> Signal:
    made = signal_of(name, limit)
    if slow is None and not ignore:
        return made
    given: dict[str, Any] = {"hold": limit, "ignore": list(ignore)}
    if slow is not None:
        given["slow"] = slow
    chosen = signal_of(name, given)
    half = made.limits.slow if slow is None else chosen.limits.slow
    return Signal(name=name, limits=Limits(slow=half, hold=chosen.limits.hold, ignore=chosen.limits.ignore))


NAMES: Final = tuple(KINDS)
