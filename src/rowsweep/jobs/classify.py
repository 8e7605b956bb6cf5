"""What a raised error means for its job: its class, whether it is tried again, and the stop reason."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, cast, get_args

from rowsweep.errors import RateLimited, RetryClass, RowsweepError
from rowsweep.jobs.retry import backoff_seconds, stated_seconds

if TYPE_CHECKING:
    from rowsweep.jobs.retry import Retry

_CLASSES: Final = get_args(RetryClass)


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
    declared = getattr(error, "retry", None)
    if declared is None or declared in _CLASSES:
        return cast("RetryClass | None", declared)
    if not isinstance(error, RowsweepError) and isinstance(declared, str):
        warnings.warn(
            f"{type(error).__name__}.retry is {declared!r:.60}; expected one of {', '.join(_CLASSES)}: ignored.",
            stacklevel=2,
        )
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
    stated = getattr(error, "retry_after_seconds", None)
    if isinstance(stated, bool) or not isinstance(stated, (int, float)) or not math.isfinite(stated):
        return None
    return float(stated) if stated > 0 else None
