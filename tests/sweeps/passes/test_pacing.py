"""The small parts of a pass: its batch size, its pacer, its position, and what it tells the ledger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowsweep.errors import InvalidOption
from rowsweep.queue.stores.ledger import MOST_SAMPLES
from rowsweep.sweeps.batch.batch import BatchPlace
from rowsweep.sweeps.batch.sizing import LEAST_ROWS, MOST_ROWS, BatchSize
from rowsweep.sweeps.passes.pacing import Pacer
from rowsweep.sweeps.passes.position import Plan, Position, as_checkpoint
from rowsweep.sweeps.passes.progress import Progress


class HandClock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)


def test_the_batch_after_one_of_r_rows_starts_r_over_rate_after_that_one_started() -> None:
    """S-205, D-6: time a batch took is part of its share; unused time is not saved up."""
    clock = HandClock()
    pacer = Pacer("100/s", clock)
    assert pacer.wait_seconds() == 0
    pacer.begin()
    clock.seconds += 2
    pacer.done(500)
    assert pacer.wait_seconds() == pytest.approx(3)
    clock.seconds += 60
    assert pacer.wait_seconds() == 0
    pacer.begin()
    pacer.done(500)
    assert pacer.wait_seconds() == pytest.approx(5)
    pacer.begin()
    pacer.done(0)
    assert pacer.wait_seconds() == 0
    with pytest.raises(InvalidOption):
        Pacer("0/s", clock)


def test_a_rate_may_change_while_a_batch_waits_for_it() -> None:
    """D-6, N-122: the new rate counts from the batch before; without one nothing waits."""
    clock = HandClock()
    pacer = Pacer(None, clock)
    pacer.begin()
    pacer.done(1_000)
    assert pacer.wait_seconds() == 0
    pacer.change("1/s")
    assert pacer.wait_seconds() == pytest.approx(1_000)
    clock.seconds += 5
    pacer.change("100/s")
    assert pacer.wait_seconds() == pytest.approx(5)
    pacer.change(None)
    assert pacer.wait_seconds() == 0


def sizes(size: BatchSize, *durations: float, is_full: bool = True) -> list[int]:
    """Answer the size after each batch."""
    answer = []
    for milliseconds in durations:
        size.completed(is_full=is_full, duration_ms=milliseconds)
        answer.append(size.rows)
    return answer


def test_a_size_is_adapted_from_the_third_batch_on() -> None:
    """N-068: by at most 1.2 up and 0.5 down, smoothed, within its bounds."""
    assert sizes(BatchSize(1_000, adapt=True), 10, 10) == [1_000, 1_000]
    assert sizes(BatchSize(1_000, adapt=True), 10, 10, 10, 10) == [1_000, 1_000, 1_200, 1_400]
    assert sizes(BatchSize(1_000, adapt=True), 9_000, 9_000, 9_000, 9_000)[2:] == [500, 250]
    assert sizes(BatchSize(1_000, adapt=True), *[10_000] * 9)[-1] == LEAST_ROWS
    assert sizes(BatchSize(1_000, adapt=True), *[1] * 60)[-1] == MOST_ROWS
    assert sizes(BatchSize(20, adapt=True), *[10_000] * 9)[-1] == 20
    assert sizes(BatchSize(50_000, adapt=True), *[1] * 9)[-1] == 50_000
    assert sizes(BatchSize(1_000, adapt=True), *[10] * 9, is_full=False)[-1] == 1_000


def test_a_fixed_size_only_falls_and_comes_back() -> None:
    """N-068, N-069: `adapt=False`; halved at trouble, to one row at the least, doubled by each full batch."""
    size = BatchSize(10, adapt=False)
    assert sizes(size, 1, 1, 1, 9_000, 9_000) == [10] * 5
    seen = []
    for _ in range(5):
        size.halve()
        seen.append(size.rows)
    assert seen == [5, 2, 1, 1, 1]
    assert sizes(size, 1, 1, 1, 1, 1, 1) == [2, 4, 8, 10, 10, 10]


@given(
    start=st.integers(1, 1_000_000),
    adapt=st.booleans(),
    events=st.lists(st.one_of(st.none(), st.tuples(st.booleans(), st.floats(0, 1e7)))),
)
def test_a_size_stays_within_its_bounds_whatever_happens(
    start: int, adapt: bool, events: list[tuple[bool, float] | None]
) -> None:
    """N-068: at least one row, never above the larger of its start and 10,000."""
    size = BatchSize(start, adapt=adapt)
    for event in events:
        if event is None:
            size.halve()
        else:
            size.completed(is_full=event[0], duration_ms=event[1])
        assert 1 <= size.rows <= (max(start, MOST_ROWS) if adapt else start)


texts = st.lists(st.text(), min_size=1, max_size=3).map(tuple)
counts = st.integers(0, 2**60)
positions = st.builds(
    Position,
    index=st.integers(-1, 2**60),
    cursor=texts,
    rows=counts,
    written=counts,
    plan=st.one_of(st.none(), st.builds(Plan, to=texts, rows=counts)),
)


@given(at=positions)
def test_a_position_is_stored_and_read_back_as_it_was(at: Position) -> None:
    """S-186, D-5: any cursor, with and without a plan; and the end."""
    assert as_checkpoint(at.as_json(), "sweep:pages") == at
    assert as_checkpoint(at.finished().as_json(), "sweep:pages") == at.finished()
    assert as_checkpoint(None, "sweep:pages") == Position()


def test_a_first_plan_is_not_the_end() -> None:
    """D-5: a null cursor with a plan is the beginning, planned."""
    planned = Position().planned(Plan(to=("9",), rows=3))
    assert as_checkpoint(planned.as_json(), "sweep:pages") == planned
    assert not as_checkpoint(planned.as_json(), "sweep:pages").ended
    moved = planned.moved(("9",), rows=3, written=1)
    assert (moved.index, moved.batches, moved.rows, moved.written, moved.plan) == (0, 1, 3, 1, None)
    empty = moved.moved(("12",), rows=0, written=0)
    assert (empty.index, empty.cursor, empty.rows) == (0, ("12",), 3)


@given(first=st.tuples(texts, texts), second=st.tuples(texts, texts))
def test_a_batchs_key_is_of_its_bounds_alone(
    first: tuple[tuple[str, ...], tuple[str, ...]], second: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    """N-067: equal bounds, equal key, whatever the index; others, another; at the beginning too."""

    def key(bounds: tuple[tuple[str, ...], tuple[str, ...]], index: int = 0) -> str:
        return BatchPlace(run_id="r", index=index, after=bounds[0], to=bounds[1]).key

    assert (key(first) == key(second)) == (first == second)
    assert key(first) == key(first, index=7)
    assert BatchPlace(run_id="r", index=0, after=None, to=first[1]).key != key(first)
    assert key(first).startswith("r:")


def test_samples_are_bounded_and_one_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-077: `[active seconds, rows]`; when full every second one goes; between them the column is left alone."""
    clock = HandClock()
    monkeypatch.setattr("rowsweep.sweeps.passes.progress.real_monotonic", clock.monotonic)
    progress = Progress(None)
    kept: list[list[float]] = []
    for second in range(1_000):
        clock.seconds += 0.5
        given_samples = progress.totals(Position(index=second, cursor=("1",), rows=second)).samples
        if given_samples is not None:
            kept = [list(pair) for pair in given_samples]
    assert len(kept) <= MOST_SAMPLES
    assert kept == sorted(kept)
    assert kept[0][0] < 10
    assert kept[-1][0] > 490
    assert progress.active_seconds == pytest.approx(500)
    final = progress.totals(Position(index=1_000, rows=1_000), final=True)
    assert final.samples is not None
    assert final.samples[-1] == [500.0, 1_000]
