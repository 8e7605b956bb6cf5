"""What a relay with nothing to do costs."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.outbox.relay import OutboxRelay
from rowsweep.testing.clock import FakeClock
from tests.outbox.test_relay import until
from tests.statements import note_statements

MINUTES = 20


class FastForward:
    """Wait by moving the clock; hold the loop once so many seconds have passed."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        self._clock = clock
        self._end = clock.monotonic() + seconds
        self.may_begin, self.over = threading.Event(), threading.Event()

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        if not self.may_begin.is_set():
            condition.wait(0.01)
        elif self._clock.monotonic() < self._end and seconds is not None:
            self._clock.advance(timedelta(seconds=seconds))
        else:
            self.over.set()
            condition.wait(seconds if seconds is None else 60)


@pytest.mark.parametrize("kind", ["wake", "no wake"])
def test_an_idle_relay_costs_what_an_idle_worker_does(
    queue_app: rs.App, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """S-385, DESIGN's idle cost: at most 30 statements a minute without a wake, at most 6 with a proven one."""
    counted: list[float] = []
    clock = FakeClock()

    def count(_query: str, _values: Any) -> None:
        if threading.current_thread().name in {"rowsweep-relay", "rowsweep-wake"}:
            counted.append(clock.monotonic())

    if kind == "no wake":
        monkeypatch.setattr(type(queue_app.driver), "listen", lambda _self: None)
    timers = FastForward(clock, 60.0 * MINUTES)
    relay = OutboxRelay(driver=queue_app.driver, clock=clock, timers=timers)
    relay.start()
    if kind == "wake":
        until(lambda: relay._wake.is_proven)
    began = clock.monotonic()
    with monkeypatch.context() as patched:
        note_statements(patched, count)
        timers.may_begin.set()
        assert timers.over.wait(100)
    relay.stop()
    a_minute = [sum(60 * m <= at - began < 60 * (m + 1) for at in counted) for m in range(1, MINUTES)]
    if kind == "wake":
        assert min(a_minute) >= 2
        assert max(a_minute) <= 6
    else:
        assert min(a_minute) >= 29
        assert max(a_minute) <= 30


def test_the_wake_s_proof_rides_on_a_look(queue_app: rs.App, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-25, N-043: a proof a minute, and no statement of its own for it."""
    relay = queue_app.relay()
    relay._wake.start()
    until(lambda: relay._wake.is_proven)
    wake: Any = relay._wake._wake
    monkeypatch.setattr(wake, "_asked_at", wake._asked_at - 50)
    asked_at = wake._asked_at
    relay.tick()
    until(lambda: wake._awaited is None and wake._asked_at > asked_at)
    assert wake._heard == 2
    relay._wake.stop()
