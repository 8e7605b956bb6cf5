"""What a governor does before a batch, with a pass and a watch that only take notes."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowsweep.sweeps.batch.sizing import LEAST_ROWS, BatchSize
from rowsweep.sweeps.export.reading import ReadSize
from rowsweep.sweeps.health.batch_times import BatchTimes
from rowsweep.sweeps.health.governor import Governor
from rowsweep.sweeps.health.signals import Level, Verdict
from rowsweep.sweeps.health.watch import Watch

HOLDS: list[Level] = ["hold"] * 7


class Notes:
    """A pass that is told to wait, and notes it."""

    def __init__(self) -> None:
        self.waits: list[tuple[float, str]] = []
        self.notes: list[tuple[str | None, Mapping[str, Any]]] = []
        self.logged: list[tuple[str, str]] = []

    def wait_for_health(self, seconds: float, why: str, *, rests: bool) -> None:
        self.waits.append((seconds, why))

    def note_health(self, waiting_for: str | None, governed: Mapping[str, Any]) -> None:
        self.notes.append((waiting_for, governed))

    def log_health(self, event: str, verdict: Verdict) -> None:
        self.logged.append((event, verdict.name))


def governor(*levels: Level) -> tuple[Governor, Notes]:
    """Make a governor whose one signal is at these levels, look by look; the last one stays."""
    left = list(levels)
    notes = Notes()
    times = BatchTimes()

    def look(*, asks: bool = True) -> list[Verdict]:
        level = left.pop(0) if len(left) > 1 else left[0]
        return [Verdict("lag", level, f"{level} now")]

    return Governor(SimpleNamespace(look=look, times=times, is_due=False), notes), notes  # type: ignore[arg-type]


def test_a_hold_waits_a_second_doubling_to_thirty_until_it_is_over() -> None:
    """D-6: shown as `waiting_for`, and gone from it once it is over."""
    made, notes = governor(*HOLDS, "ok")
    made.before_batch(BatchSize(1_000, adapt=True))
    assert [seconds for seconds, _ in notes.waits] == [1, 2, 4, 8, 16, 30, 30]
    assert {why for _, why in notes.waits} == {"hold now"}
    assert [why for why, _ in notes.notes] == ["hold now"] * 7 + [None]
    assert notes.logged == [("sweeps.held", "lag")]
    made.before_batch(BatchSize(1_000, adapt=True))
    assert len(notes.waits) == 7
    assert len(notes.notes) == 8


def test_a_second_hold_begins_with_a_second_again() -> None:
    """D-6: the doubling is of one hold."""
    made, notes = governor("hold", "hold", "ok", "hold", "ok")
    for _ in range(2):
        made.before_batch(BatchSize(1_000, adapt=True))
    assert [seconds for seconds, _ in notes.waits] == [1, 2, 1]


def test_a_strain_halves_the_size_once_and_pauses_as_long_as_the_last_batch_took() -> None:
    """N-068: it does not grow until the strain is over, and a second strain halves it again."""
    made, notes = governor("slow", "slow", "ok", "slow")
    size = BatchSize(1_000, adapt=True)
    made.after_batch(1_000, 0.3)
    made.before_batch(size)
    assert (size.rows, size.may_grow) == (500, False)
    for _ in range(5):
        size.completed(is_full=True, duration_ms=1)
    assert size.rows == 500
    made.after_batch(500, 9)
    made.before_batch(size)
    assert (size.rows, size.may_grow) == (500, False)
    assert notes.waits == [(0.3, "slow now"), (1.0, "slow now")]
    made.before_batch(size)
    assert size.may_grow
    size.completed(is_full=True, duration_ms=1)
    assert size.rows == 600
    made.before_batch(size)
    assert size.rows == 300
    assert notes.logged == [("sweeps.slowed", "lag")] * 2


def test_what_is_unknown_neither_holds_nor_slows_and_is_told() -> None:
    """D-6: shown, not fatal; told once, not before each batch."""
    made, notes = governor("unknown")
    size = BatchSize(1_000, adapt=True)
    for _ in range(3):
        made.before_batch(size)
    assert (notes.waits, size.rows, size.may_grow) == ([], 1_000, True)
    told: dict[str, Any] = {"held": {}, "slowed": {}, "signals": {"lag": {"is": "unknown", "says": "unknown now"}}}
    assert notes.notes == [(None, told)]


def test_the_time_of_a_wait_is_accounted_for_however_it_ends() -> None:
    """D-6: a wait that a cancel cuts short was still a wait."""
    made, notes = governor("hold")

    def cut(seconds: float, why: str, *, rests: bool) -> None:
        raise KeyboardInterrupt

    notes.wait_for_health = cut  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        made.before_batch(BatchSize(1_000, adapt=True))
    made.close()
    waiting_for, governed = notes.notes[-1]
    assert waiting_for is None
    assert list(governed["held"]) == ["lag"]
    assert "signals" not in governed


def test_a_governor_that_was_replaced_during_its_wait_lets_go() -> None:
    """N-122: tuned while it holds, the new one decides."""
    made, notes = governor("hold")

    def tuned(seconds: float, why: str, *, rests: bool) -> None:
        made.close()

    notes.wait_for_health = tuned  # type: ignore[method-assign]
    made.before_batch(BatchSize(1_000, adapt=True))
    assert made.is_closed
    assert [list(governed["held"]) for _, governed in notes.notes] == [[], ["lag"]]


def test_a_size_is_eased_to_its_least_and_no_further() -> None:
    """N-068: the size that adaptation goes down to; a declared smaller one stays. An export's parts span fewer keys."""
    size = BatchSize(1_000, adapt=True)
    for _ in range(9):
        size.ease()
    assert size.rows == LEAST_ROWS
    small = BatchSize(20, adapt=True)
    small.ease()
    assert small.rows == 20
    read = ReadSize(100_000)
    rows = read.rows
    read.ease()
    assert (read.rows, read.span, read.part_rows) == (rows, 50_000, 100_000)


@given(events=st.lists(st.tuples(st.sampled_from(["batch", "ease", "free", "halve"]), st.floats(1, 1e4))))
def test_a_size_never_grows_while_it_may_not(events: list[tuple[str, float]]) -> None:
    """N-068: whatever the batches take."""
    size = BatchSize(1_000, adapt=True)
    for what, milliseconds in events:
        was = size.rows
        if what == "batch":
            size.completed(is_full=True, duration_ms=milliseconds)
        elif what == "ease":
            size.may_grow = False
            size.ease()
        elif what == "halve":
            size.halve()
        else:
            size.may_grow = True
        assert size.may_grow or size.rows <= was


def test_batches_are_compared_with_those_of_about_as_many_rows() -> None:
    """D-6: our own batch times: smaller batches that cost more a row are no sign of strain; what lasts is usual."""
    times = BatchTimes()
    for _ in range(10):
        times.done(1_000, 0.1)
        assert times.times_as_long is None
    times.done(1_000, 0.1)
    assert times.times_as_long == pytest.approx(1)
    for _ in range(20):
        times.done(100, 0.05)
    assert times.times_as_long == pytest.approx(1)
    for _ in range(20):
        times.done(1_000, 0.9)
    assert times.times_as_long is not None
    assert times.times_as_long > 3
    for _ in range(1_000):
        times.done(1_000, 0.9)
    assert times.times_as_long == pytest.approx(1, abs=0.1)


def test_the_next_batch_begins_at_once_only_where_nothing_is_to_be_asked_or_waited_for() -> None:
    """D-6: an application's function is asked while no transaction is open; what was begun goes on without it."""
    asked: list[int] = []

    def counting() -> None:
        asked.append(1)

    watch = Watch([counting], None, frozenset())
    made = Governor(watch, Notes())
    size = BatchSize(1_000, adapt=False)
    assert not made.goes_on()
    made.before_batch(size)
    assert (made.goes_on(), len(asked)) == (True, 1)
    watch._asked_at = None
    made.before_batch(size)
    assert len(asked) == 1
    assert not made.goes_on()
    made.before_batch(size)
    assert len(asked) == 2
    held, _ = governor("slow")
    held.before_batch(size)
    assert not held.goes_on()


def test_functions_are_asked_once_a_second_at_most_and_readings_judged_as_they_come() -> None:
    """D-6: an application's function may ask another system; a pass makes many batches a second."""
    asked: list[int] = []
    watch = Watch([lambda: asked.append(1)], None, frozenset())
    for _ in range(50):
        assert [verdict.level for verdict in watch.look()] == ["ok"]
    assert len(asked) == 1
