"""Which signals and functions a run heeds: the connection's, the declaration's, or what an operator asks for."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rowsweep.errors import nearest
from rowsweep.options import invalid_option
from rowsweep.sweeps.health.signals import NAMES, HealthCheck, Signal, default_signals, signal_of

if TYPE_CHECKING:
    from rowsweep.jobs.values.json_form import Json

INHERIT: Final = object()
_EXPECTED: Final = "functions that answer None or the reason to wait, signals such as rs.replica_lag_below, or None"
_WORKS: Final = 'rs.replica_lag_below("10s")'
_ASKED: Final = '"on", "off", or limits by signal'


def checks_of(value: object) -> tuple[HealthCheck, ...]:
    """Screen `health=`: "on" are the default signals, None, "off" and () nothing. Raises InvalidOption."""
    if value is None or value == "off":
        return ()
    if value == "on":
        return tuple(default_signals())
    found = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    for one in found:
        if not callable(one) or inspect.iscoroutinefunction(one) or isinstance(one, type):
            raise invalid_option("health", _EXPECTED, one, _WORKS)
    return found


def name_of(check: HealthCheck) -> str:
    """Answer what a check is called in reports."""
    if isinstance(check, Signal):
        return check.name
    return str(getattr(check, "__name__", type(check).__name__))


def asked_of(value: object) -> Json:
    """Screen what `tune(health=)` asks for, as it is stored. Raises InvalidOption."""
    if value in ("on", "off"):
        return value
    if not isinstance(value, Mapping) or not value:
        raise invalid_option("health", _ASKED, value, '{"replica_lag": "10s"}')
    for name, limits in value.items():
        if name not in NAMES:
            near = nearest(str(name), NAMES) or list(NAMES)
            raise invalid_option("health", f"limits by signal ({', '.join(NAMES)})", name, f'{{"{near[0]}": …}}')
        if not _is_off(limits):
            signal_of(name, limits)
    return {name: "off" if _is_off(limits) else _plain(limits) for name, limits in value.items()}


def chosen(declared: Sequence[HealthCheck], asked: Any) -> tuple[HealthCheck, ...]:
    """Answer what a run heeds: what is declared, as an operator changed it.

    "on" is what is declared, the default signals where that is nothing; limits by signal are laid over what is
    declared.
    """
    if asked is None:
        return tuple(declared)
    if asked == "off":
        return ()
    if asked == "on":
        return tuple(declared) or tuple(default_signals())
    kept = [one for one in declared if not (isinstance(one, Signal) and one.name in asked)]
    added = [signal_of(name, limits) for name, limits in asked.items() if not _is_off(limits)]
    return (*kept, *added)


def _is_off(limits: object) -> bool:
    return limits is None or limits == "off"


def _plain(limits: Any) -> Any:
    return dict(limits) if isinstance(limits, Mapping) else limits if isinstance(limits, int | float) else str(limits)
