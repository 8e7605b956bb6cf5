"""The in-process limiter: how many runs at once, and how many starts in a window, this process allows."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, deque
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from rowsweep.clock import SystemClock
from rowsweep.errors import InvalidOption
from rowsweep.options import count, duration
from rowsweep.spelling import spelled

if TYPE_CHECKING:
    from rowsweep.clock import Clock

Reason = Literal["total", "per_queue", "per_tenant", "rate_per_tenant"]
_FIX: Final = 'rate_per_tenant=(100, "1m")'


@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterFull:
    """A job may not start now: the limit that is full, by its option's name."""

    reason: Reason


class LimiterLease:
    """What one admitted run takes of the limiter, until it is given back, once."""

    def __init__(self, limiter: ConcurrencyLimiter, queue: str, tenant: str | None, started_at: float) -> None:
        self._limiter = limiter
        self.queue = queue
        self.tenant = tenant
        self.started_at = started_at
        self.is_open = True

    def release(self) -> None:
        """Give back what a run took that began; its start still counts in the rate's window."""
        self._limiter._end(self, began=True)

    def abandon(self) -> None:
        """Give back what a run took that never began, its start in the window with it."""
        self._limiter._end(self, began=False)


@spelled
class ConcurrencyLimiter:
    """Limit the runs of this process: in all, by queue, by the row's tenant, and starts by tenant in a sliding window.

    A fast path within one process: with n worker processes the fleet runs up to n times as many, so a rate that a
    contract promises is not kept by it, nor a cap that must hold; `concurrency=` on the job holds across the fleet.
    None is no limit, zero lets nothing run. `rate_per_tenant` is a limit and a window, such as `(100, "1m")`. Rows
    without a tenant share one bucket. Raises InvalidOption.
    """

    def __init__(
        self,
        *,
        per_tenant: int | None = None,
        per_queue: int | None = None,
        total: int | None = None,
        rate_per_tenant: tuple[int, str | timedelta] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._per_tenant = _limit(per_tenant, "per_tenant")
        self._per_queue = _limit(per_queue, "per_queue")
        self._total = _limit(total, "total")
        self._rate, self._window = _rate(rate_per_tenant)
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._running = 0
        self._queues: Counter[str] = Counter()
        self._tenants: Counter[str | None] = Counter()
        self._starts: dict[str | None, deque[float]] = {}

    def acquire(self, *, queue: str, tenant: str | None) -> LimiterLease | LimiterFull:
        """Take what one run needs, or nothing: asked in the order total, queue, tenant, rate."""
        with self._lock:
            now = self._clock.monotonic()
            reason = self._full(queue, tenant, now)
            if reason is not None:
                return LimiterFull(reason=reason)
            self._running += 1
            self._queues[queue] += 1
            self._tenants[tenant] += 1
            if self._rate is not None:
                self._forget_quiet(now)
                self._starts.setdefault(tenant, deque()).append(now)
            return LimiterLease(self, queue, tenant, now)

    def _full(self, queue: str, tenant: str | None, now: float) -> Reason | None:
        if self._total is not None and self._running >= self._total:
            return "total"
        if self._per_queue is not None and self._queues[queue] >= self._per_queue:
            return "per_queue"
        if self._per_tenant is not None and self._tenants[tenant] >= self._per_tenant:
            return "per_tenant"
        if self._rate is not None and self._recent(tenant, now) >= self._rate:
            return "rate_per_tenant"
        return None

    def _recent(self, tenant: str | None, now: float) -> int:
        """Count the starts in the window, forgetting a tenant with its last one."""
        starts = self._starts.get(tenant)
        if starts is None:
            return 0
        while starts and starts[0] <= now - self._window:
            starts.popleft()
        if not starts:
            del self._starts[tenant]
        return len(starts)

    def _forget_quiet(self, now: float) -> None:
        """Look at the two tenants longest not looked at: one that never starts anything again is kept no longer."""
        for tenant in list(itertools.islice(self._starts, 2)):
            starts = self._starts.pop(tenant)
            if starts and starts[-1] > now - self._window:
                self._starts[tenant] = starts

    def _end(self, lease: LimiterLease, *, began: bool) -> None:
        with self._lock:
            if not lease.is_open:
                return
            lease.is_open = False
            self._running -= 1
            for counts, key in ((self._queues, lease.queue), (self._tenants, lease.tenant)):
                _subtract(counts, key)
            starts = self._starts.get(lease.tenant)
            if not began and starts and lease.started_at in starts:
                starts.remove(lease.started_at)


def _subtract(counts: Counter[Any], key: str | None) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]


def _limit(value: int | None, option: str) -> int | None:
    return None if value is None else count(value, option=option, minimum=0)


def _rate(given: object) -> tuple[int | None, float]:
    if given is None:
        return None, 0.0
    if not isinstance(given, tuple) or len(given) != 2:
        raise InvalidOption(
            f"rate_per_tenant must be a limit and a window; got {given!r:.80}.",
            fix=_FIX,
            meta={"option": "rate_per_tenant"},
        )
    window = duration(given[1], option="rate_per_tenant").total_seconds()
    if window <= 0:
        raise InvalidOption(
            "The window of rate_per_tenant must be longer than nothing.", fix=_FIX, meta={"option": "rate_per_tenant"}
        )
    return count(given[0], option="rate_per_tenant", minimum=0), window
