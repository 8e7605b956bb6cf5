"""The run threads of one queue: a thread for each body that blocks, one for many that do not."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from rowsweep.worker.flights import Flight
from rowsweep.worker.run.pool import RunPool
from tests.worker.shop import until

_numbers = itertools.count()


class Harness:
    """A pool whose flights are functions, and what it said of them."""

    def __init__(self, size: int) -> None:
        self.done: list[Any] = []
        self.freed: list[str] = []
        self.refused: list[Any] = []
        self.queue = f"pool-{next(_numbers)}"
        self.pool = RunPool(
            self.queue, size, self._work, self.freed.append, refused=lambda flight, _: self.refused.append(flight)
        )

    def submit(self, body: Callable[[], object]) -> Flight:
        """Hand a function to the pool as a flight."""
        flight = cast("Flight", body)
        self.pool.submit([flight])
        return flight

    def _work(self, flight: Flight) -> None:
        cast("Callable[[], object]", flight)()
        self.done.append(flight)

    def threads(self) -> list[threading.Thread]:
        """Answer the run threads of this pool."""
        return [thread for thread in threading.enumerate() if thread.name == f"rowsweep-run-{self.queue}"]


def test_as_many_bodies_as_the_size_run_at_once() -> None:
    """S-274: each of them waits for all others."""
    harness, barrier = Harness(8), threading.Barrier(8)
    for _ in range(8):
        harness.submit(lambda: barrier.wait(30))
    until(lambda: len(harness.done) == 8)
    assert harness.pool.free == 8
    harness.pool.close()


def test_a_body_that_blocks_holds_up_none_behind_it() -> None:
    """S-274: whoever takes a flight while others wait wakes another thread."""
    harness, gate = Harness(3), threading.Event()
    harness.submit(lambda: gate.wait(30))
    harness.submit(lambda: gate.wait(30))
    for _ in range(50):
        harness.submit(lambda: None)
    until(lambda: len(harness.done) == 50)
    gate.set()
    until(lambda: len(harness.done) == 52)
    harness.pool.close()


def test_no_claim_is_wanted_while_flights_wait_in_plenty_and_one_is_where_threads_run_dry() -> None:
    """D-16: small claims after each of many short runs would cost more than the runs; a large one would not."""
    harness, gate = Harness(8), threading.Event()
    for amount in (1, 7, 8):
        while harness.pool._busy < amount:
            harness.submit(lambda: gate.wait(30))
        until(lambda: not harness.pool._waiting)
        assert harness.pool.wants == (amount < 8)
    gate.set()
    until(lambda: len(harness.done) == 8)
    assert harness.freed
    for waiting, busy, wanted in ((4, 7, True), (5, 6, True), (5, 7, False), (8, 8, False)):
        harness.pool._waiting.extend([cast("Flight", print)] * (waiting - len(harness.pool._waiting)))
        harness.pool._busy = busy
        assert harness.pool.wants == wanted
    harness.pool._waiting.clear()
    harness.pool.close()


def test_a_claim_that_was_put_off_is_asked_for_once_what_waited_has_begun() -> None:
    """S-383: no run may have to end for it."""
    harness, gate = Harness(8), threading.Event()
    harness.pool.submit([cast("Flight", partial(gate.wait, 30 + number)) for number in range(7)])
    until(lambda: harness.freed == [harness.queue])
    gate.set()
    until(lambda: len(harness.done) == 7)
    harness.pool.close()


def test_a_flight_left_behind_gives_its_place_to_another_thread() -> None:
    """S-143."""
    harness, gate = Harness(1), threading.Event()
    left = harness.submit(lambda: gate.wait(30))
    until(lambda: harness.pool.thread_of(left) is not None)
    harness.submit(lambda: None)
    harness.pool.leave_behind(left)
    until(lambda: len(harness.done) == 1)
    assert harness.freed
    gate.set()
    until(lambda: len(harness.done) == 2)
    assert harness.pool.free == 1
    harness.pool.close()
    until(lambda: not harness.threads())


def test_a_closed_pool_works_what_it_was_given_and_ends_its_threads() -> None:
    """S-303: closing waits for nobody, and leaves nothing running once the bodies have ended."""
    harness, gate = Harness(2), threading.Event()
    for _ in range(5):
        harness.submit(lambda: gate.wait(30))
    harness.pool.close()
    gate.set()
    until(lambda: len(harness.done) == 5)
    until(lambda: not harness.threads())


def test_flights_without_a_thread_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-290: where none can be started their claims go back at once."""
    harness = Harness(2)

    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", full)
    flight = harness.submit(lambda: None)
    assert harness.refused == [flight]
    assert harness.pool.free == 2


def test_who_was_woken_leaves_flights_to_a_thread_that_takes_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S-274: and takes one itself where that thread was in the same body when it looked again."""
    harness = Harness(8)
    monkeypatch.setattr(threading.Thread, "start", lambda _: None)
    first, second, third = (cast("Flight", lambda at=at: at) for at in range(3))
    harness.pool.submit([first, second, third])
    assert harness.pool._turn(None, 1, is_woken=True) == (first, "work")
    assert harness.pool._turn(first, 1, is_woken=False) == (second, "work")
    assert harness.pool._turn(None, 2, is_woken=True) == (None, "look")
    assert harness.pool._turn(None, 2, is_woken=True) == (third, "work")


def test_a_flight_that_comes_while_nobody_works_is_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-383: also by a thread that has just seen another take one."""
    harness = Harness(8)
    monkeypatch.setattr(threading.Thread, "start", lambda _: None)
    first, second, third = (cast("Flight", lambda at=at: at) for at in range(3))
    harness.pool.submit([first, second])
    harness.pool._turn(None, 1, is_woken=True)
    harness.pool._turn(first, 1, is_woken=False)
    harness.pool._turn(second, 1, is_woken=False)
    harness.pool.submit([third])
    assert harness.pool._came.is_set()
    assert harness.pool._turn(None, 2, is_woken=True) == (third, "work")
