"""The retry policy and its backoff curve."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rowsweep.errors import InvalidOption
from rowsweep.options import count, duration, finite
from rowsweep.spelling import spelled

_SPREAD_SHARE: Final = 0.1
_SPREAD_MOST_SECONDS: Final = 30.0
RATE_LIMIT_SECONDS: Final = 30.0
_MOST_ATTEMPTS: Final = 2**31 - 1


@spelled
@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Say how often and how soon a failed job is tried again.

    The delay after attempt n is uniform in [0, min(max_delay, base·factor^(n-1))] (full jitter:
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/), or exactly that bound without
    `jitter`. `attempts` is fixed on the row at enqueue. Without `dead_letter` a job that fails for good is `failed`
    instead of `dead`.
    """

    attempts: int = 5
    base: str | timedelta = "1s"
    factor: float = 2.0
    max_delay: str | timedelta = "5m"
    jitter: bool = True
    dead_letter: bool = True

    def __post_init__(self) -> None:
        count(self.attempts, option="retry.attempts", minimum=1, maximum=_MOST_ATTEMPTS)
        duration(self.base, option="retry.base")
        finite(self.factor, option="retry.factor", minimum=1.0)
        duration(self.max_delay, option="retry.max_delay")
        for option in ("jitter", "dead_letter"):
            if not isinstance(getattr(self, option), bool):
                raise InvalidOption(
                    f"retry.{option} must be True or False; got {getattr(self, option)!r:.80}.",
                    fix=f"Retry({option}=True)",
                )

    @property
    def base_seconds(self) -> float:
        """Answer the first delay's bound in seconds."""
        return duration(self.base, option="retry.base").total_seconds()

    @property
    def max_delay_seconds(self) -> float:
        """Answer the longest delay in seconds."""
        return duration(self.max_delay, option="retry.max_delay").total_seconds()


def backoff_seconds(policy: Retry, attempt: int, chance: float) -> float:
    """Answer the delay after the given attempt (from 1) on the curve; `chance` is uniform in [0, 1)."""
    bound = policy.max_delay_seconds
    if policy.base_seconds <= bound:
        try:
            bound = min(bound, policy.base_seconds * policy.factor ** (max(attempt, 1) - 1))
        except OverflowError:
            bound = policy.max_delay_seconds
    return bound * chance if policy.jitter else bound


def stated_seconds(policy: Retry, stated: float | None, chance: float) -> float:
    """Answer a delay that an error stated, capped by the policy and spread only later (≤ 10 %, ≤ 30 s)."""
    delay = min(RATE_LIMIT_SECONDS if stated is None else max(stated, 0.0), policy.max_delay_seconds)
    return delay + (min(delay * _SPREAD_SHARE, _SPREAD_MOST_SECONDS) * chance if policy.jitter else 0.0)
