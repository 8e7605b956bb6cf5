"""The caps that this worker knows to be full: its claims leave their rows where they stand."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rowsweep.clock import Clock
    from rowsweep.jobs.concurrency import Cap
    from rowsweep.jobs.handle import JobHandle

BUSY_SECONDS: Final = 1.0
MOST_MARKS: Final = 1_000

Mark = tuple[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a claim may take: full caps by name and key, and how many rows of a name or of one key at most."""

    busy: list[Mark]
    rooms: Mapping[str, int]
    key_rooms: Mapping[str, int]

    @property
    def is_capped(self) -> bool:
        """Whether it is bounded by any cap."""
        return bool(self.busy or self.rooms or self.key_rooms)


class BusyCaps:
    """Note which caps are full: those just seen so, for a second, and those that this worker fills itself.

    Only caps that are waited for: a job that fails over a busy key must be claimed for that.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until: dict[Mark, float] = {}
        self._held: Counter[Mark] = Counter()
        self._limits: dict[Mark, int] = {}

    def full(self, cap: Cap) -> None:
        """Note that a cap was just seen full."""
        if cap.when_busy == "wait":
            with self._lock:
                self._until.pop(_mark(cap), None)
                self._until[_mark(cap)] = self._clock.monotonic() + BUSY_SECONDS

    def took(self, cap: Cap) -> None:
        """Note that this worker holds a slot more of a cap."""
        if cap.when_busy == "wait":
            with self._lock:
                self._held[_mark(cap)] += 1
                self._limits[_mark(cap)] = cap.limit

    def gave(self, cap: Cap) -> None:
        """Note that this worker gave a slot of a cap back, which therefore has room."""
        mark = _mark(cap)
        with self._lock:
            self._until.pop(mark, None)
            if mark in self._held:
                self._held[mark] -= 1
                if self._held[mark] <= 0:
                    del self._held[mark]
                    del self._limits[mark]

    def is_full(self, cap: Cap) -> bool:
        """Say whether a cap is known to be full."""
        with self._lock:
            self._forget_old()
            return _mark(cap) in self._until or self._is_filled(_mark(cap))

    def room(self, handles: Iterable[JobHandle[Any, Any]]) -> Room:
        """Answer what a claim for these jobs may take."""
        capped = [handle for handle in handles if handle.concurrency]
        if not capped:
            return Room(busy=[], rooms={}, key_rooms={})
        with self._lock:
            self._forget_old()
            filled = [mark for mark in self._held if self._is_filled(mark)]
            busy = list(dict.fromkeys([*filled, *reversed(self._until)]))[:MOST_MARKS]
            rooms = {
                handle.name: max(handle.concurrency.limit - self._held[handle.name, None], 0)
                for handle in capped
                if handle.concurrency.limit is not None
            }
        keyed = ((handle.name, handle.concurrency.keyed) for handle in capped)
        key_rooms = {name: cap.limit for name, cap in keyed if cap is not None and cap.when_busy == "wait"}
        return Room(busy=busy, rooms=rooms, key_rooms=key_rooms)

    def ends_in(self) -> float | None:
        """Answer the seconds until the next cap is no longer taken for full, None where none is."""
        with self._lock:
            self._forget_old()
            return None if not self._until else max(min(self._until.values()) - self._clock.monotonic(), 0.0)

    def _is_filled(self, mark: Mark) -> bool:
        return mark in self._held and self._held[mark] >= self._limits[mark]

    def _forget_old(self) -> None:
        now = self._clock.monotonic()
        for mark in [mark for mark, until in self._until.items() if until <= now]:
            del self._until[mark]


def _mark(cap: Cap) -> Mark:
    return cap.name, cap.key
