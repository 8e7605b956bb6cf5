"""Ask a database once a second how it is, for as long as a pass of this process works on it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

from rowsweep.clock import real_monotonic
from rowsweep.sweeps.health.question import ask
from rowsweep.sweeps.health.reading import Positions, Reading
from rowsweep.telemetry.text import storable_text

EVERY_SECONDS: Final = 1.0
STALE_SECONDS: Final = 10.0
_LONGEST_WHY: Final = 200

Ours = Callable[[], Sequence[int]]


class Asker(Protocol):
    """What lends a connection for a question, in autocommit mode and for a moment."""

    def question_connection(self) -> AbstractContextManager[Any]:
        """Lend one."""


def read_once(place: Any, ours: Sequence[int]) -> Reading:
    """Ask a place how it is; what goes wrong is part of the answer."""
    pooled = bool(getattr(place, "pooler", False))
    try:
        with place.question_connection() as connection:
            return ask(connection, ours, knows_ours=not pooled)
    except Exception as error:  # noqa: BLE001 - a reading that fails is unknown, and no reason to fail a sweep
        why = storable_text(f"the question failed: {str(error).partition(chr(10))[0]}", _LONGEST_WHY)
        return Reading(at=real_monotonic(), failed=why)


class Sampler:
    """Read one database's state each second on a thread of its own, while somebody has a seat."""

    def __init__(self, place: Asker) -> None:
        self.place = place
        self._lock = threading.Lock()
        self._seats: dict[object, Ours] = {}
        self._thread: threading.Thread | None = None
        self._left = threading.Event()
        self._latest: Reading | None = None
        self._positions = Positions()

    def latest(self) -> Reading:
        """Answer the newest reading, taking the first one here and now; one that is too old says so."""
        reading = self._latest or self._read()
        age = real_monotonic() - reading.at
        if age > STALE_SECONDS:
            return Reading(at=reading.at, failed=f"the database has not answered for {age:.0f} s")
        return reading

    def join(self, seat: object, ours: Ours) -> None:
        """Take a seat; `ours` answers the backends its owner works on."""
        with self._lock:
            self._seats[seat] = ours
            if self._thread is None:
                self._left = threading.Event()
                self._latest, self._positions = None, Positions()
                self._thread = threading.Thread(
                    target=self._sample, args=(self._left,), name="rowsweep-health", daemon=True
                )
                self._thread.start()

    def leave(self, seat: object) -> bool:
        """Give a seat up, and say whether it was the last; the thread ends with that."""
        with self._lock:
            self._seats.pop(seat, None)
            if not self._seats:
                self._left.set()
                self._thread = None
            return not self._seats

    def _sample(self, left: threading.Event) -> None:
        while not left.wait(EVERY_SECONDS):
            self._read()

    def _read(self) -> Reading:
        with self._lock:
            seats = list(self._seats.values())
        reading = read_once(self.place, [pid for ours in seats for pid in ours()])
        with self._lock:
            self._latest = reading = self._positions.note(reading)
        return reading


_samplers: dict[tuple[int, Asker], Sampler] = {}
_lock = threading.Lock()


@contextmanager
def sampling(place: Asker, ours: Ours) -> Iterator[Sampler]:
    """Share this process's sampler of a place for the block."""
    key, seat = (os.getpid(), place), object()
    with _lock:
        sampler = _samplers.setdefault(key, Sampler(place))
        sampler.join(seat, ours)
    try:
        yield sampler
    finally:
        with _lock:
            if sampler.leave(seat):
                _samplers.pop(key, None)
