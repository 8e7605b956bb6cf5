"""Wakes that a test speaks into, and what is said on a real one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from rowsweep.errors import DriverUnavailable
from rowsweep.queue.wake import CHANNEL, PROOF
from rowsweep.queue.waking import wake as module
from rowsweep.worker.worker import Worker
from tests.worker.shop import BrokenDriver, Shop, until

SLEEPY: dict[str, Any] = {"poll": "60s", "poll_with_wake": "60s", "poll_floor": "30s", "announce_every": "60s"}

# Long before a sleepy worker would look, however loaded the machine.
SOON_SECONDS = 12.0


class Ear:
    """A wake source that the test speaks into; unless it is deaf, it hears what it says itself."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._words: list[str] = []
        self._rung = False
        self.is_deaf = False
        self.broken: Exception | None = None
        self.is_closed = False
        self.said: list[str] = []

    def hear(self, seconds: float | None) -> list[str]:
        with self._condition:
            self._condition.wait_for(lambda: self._words or self._rung or self.broken, seconds)
            self._rung = False
            if self.broken is not None:
                raise self.broken
            words, self._words = self._words, []
            return words

    def say(self, word: str) -> None:
        self.said.append(word)
        if not self.is_deaf:
            self.put(word)

    def put(self, word: str) -> None:
        with self._condition:
            self._words.append(word)
            self._condition.notify_all()

    def break_with(self, error: Exception) -> None:
        with self._condition:
            self.broken = error
            self._condition.notify_all()

    def interrupt(self) -> None:
        with self._condition:
            self._rung = True
            self._condition.notify_all()

    def close(self) -> None:
        self.is_closed = True


class EarDriver(BrokenDriver):
    """A driver whose sessions are the test's; `refuses` makes opening one fail."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self.ears: list[Ear] = []
        self.refuses = False
        self.opened_at: list[float] = []

    def listen(self) -> Ear:
        self.opened_at.append(time.monotonic())
        if self.refuses:
            raise DriverUnavailable("no session to be had", fix="wait")
        self.ears.append(Ear())
        return self.ears[-1]


def is_awake(worker: Worker) -> bool:
    """Say whether a worker trusts its wake."""
    assert worker._crew is not None
    return worker._crew.claims.is_awake


def awake(shop: Shop, **given: Any) -> Worker:
    """Start a worker and wait for its wake to be proven."""
    worker = shop.running(**given)
    until(lambda: is_awake(worker))
    return worker


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the wake's times be short."""
    for name, seconds in {
        "PROOF_WITHIN_SECONDS": 0.2,
        "_RIDES_AFTER_SECONDS": 0.3,
        "_OWN_AFTER_SECONDS": 0.6,
        "_FIRST_PAUSE": 0.05,
        "_LONGEST_PAUSE": 0.4,
    }.items():
        monkeypatch.setattr(module, name, seconds)


@contextmanager
def overheard(dsn: str) -> Iterator[list[str]]:
    """Collect what is said on the channel meanwhile, proofs left out."""
    heard: list[str] = []
    with psycopg.connect(dsn, autocommit=True) as ear:
        ear.execute(f"listen {CHANNEL}")
        yield heard
        ear.execute("select pg_notify(%s, '*end')", [CHANNEL])
        for note in ear.notifies(timeout=10):
            if note.payload == "*end":
                break
            if not note.payload.startswith(PROOF):
                heard.append(note.payload)
