"""What a raised error means for its job: its class, whether it is tried again, and the stop reason."""

from __future__ import annotations

import contextlib
import sys
import warnings
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, cast, get_args

from rowsweep.errors import RateLimited, RetryClass
from rowsweep.jobs.attempts.failure import attribute_of
from rowsweep.jobs.attempts.retry import backoff_seconds, stated_seconds

if TYPE_CHECKING:
    from rowsweep.jobs.attempts.retry import Retry

_CLASSES: Final = get_args(RetryClass)
_warned: Final[weakref.WeakSet[type[BaseException]]] = weakref.WeakSet()


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Try again after the delay; an uncounted one gives the attempt back."""

    delay_seconds: float
    counted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Stop for good; the row and the log carry the reason."""

    stop_reason: Literal["terminal", "attempts"]


def classify(error: BaseException) -> RetryClass | None:
    """Answer the error's class; None is unclassified and follows the curve, never "unknown means terminal".

    An application's error declares its class by an attribute `retry`; another value there is ignored with a warning.
    """
    declared = attribute_of(error, "retry")
    if isinstance(declared, str) and declared in _CLASSES:
        return cast("RetryClass", declared)
    if declared is not None:
        _warn_once(type(error), declared)
    return None


def decide(error: BaseException, *, attempt: int, max_attempts: int, policy: Retry, chance: float) -> Again | Stop:
    """Decide what follows a failed attempt; `chance` is uniform in [0, 1).

    A rate limit is decided first and never counts: a backlog waiting on a refilling bucket is not failing.
    """
    kind = classify(error)
    if isinstance(error, RateLimited):
        return Again(delay_seconds=stated_seconds(policy, _stated(error), chance), counted=False)
    if kind == "terminal":
        return Stop(stop_reason="terminal")
    if attempt >= max_attempts:
        return Stop(stop_reason="attempts")
    if kind == "retry-after" and (stated := _stated(error)) is not None:
        return Again(delay_seconds=stated_seconds(policy, stated, chance))
    return Again(delay_seconds=backoff_seconds(policy, attempt, chance))


def _stated(error: BaseException) -> float | None:
    stated = attribute_of(error, "retry_after_seconds")
    if isinstance(stated, bool) or not isinstance(stated, (int, float)):
        return None
    return float(stated) if 0 < stated <= sys.float_info.max else None


def _warn_once(kind: type[BaseException], declared: object) -> None:
    """Warn once a class; where warnings are errors, the run that failed must still be settled."""
    if kind in _warned:
        return
    _warned.add(kind)
    shown = repr(declared) if isinstance(declared, str) else f"a {type(declared).__name__}"
    with contextlib.suppress(UserWarning):  # raised only where warnings are errors
        warnings.warn(
            f"{kind.__name__}.retry is {shown:.60}; expected one of {', '.join(_CLASSES)}: ignored.", stacklevel=4
        )
