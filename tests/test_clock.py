"""The clocks: aware wall time, monotonic deadlines, and one that a test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from rowsweep.clock import Clock, SystemClock, real_monotonic, real_seconds_until
from rowsweep.errors import InvalidOption
from rowsweep.testing.clock import FakeClock


def test_the_system_clock_answers_aware_utc_and_growing_seconds() -> None:
    """S-009."""
    clock: Clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert clock.monotonic() <= clock.monotonic()


def test_what_is_left_of_a_deadline_is_real_and_never_negative() -> None:
    """S-010."""
    assert real_seconds_until(None) is None
    assert real_seconds_until(real_monotonic() - 5) == 0
    left = real_seconds_until(real_monotonic() + 60)
    assert left is not None
    assert 59 < left <= 60


def test_a_fake_clock_moves_only_when_it_is_told() -> None:
    """N-115."""
    clock = FakeClock()
    assert clock.now() == clock.now() == datetime(2025, 1, 1, tzinfo=UTC)
    assert clock.advance("1h30m") == datetime(2025, 1, 1, 1, 30, tzinfo=UTC)
    assert clock.monotonic() == 5400


def test_a_fake_clock_set_back_keeps_its_monotonic_time() -> None:
    """S-010."""
    clock = FakeClock()
    clock.advance(timedelta(seconds=3))
    clock.move_to(datetime(2024, 6, 1, 12, tzinfo=timezone(timedelta(hours=2))))
    assert (clock.now(), clock.monotonic()) == (datetime(2024, 6, 1, 10, tzinfo=UTC), 3)
    assert clock.now().tzinfo is UTC


def test_a_fake_clock_refuses_naive_instants_and_backward_steps() -> None:
    naive = datetime(2024, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    with pytest.raises(InvalidOption, match="'start'"):
        FakeClock(naive)
    with pytest.raises(InvalidOption, match="'at'"):
        FakeClock().move_to(naive)
    with pytest.raises(InvalidOption, match="'by'"):
        FakeClock().advance(timedelta(seconds=-1))
