"""The run's signal: first reason wins, callbacks run once, composition leaves nothing behind."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rowsweep.errors import Aborted, Draining, Interrupted, JobTimedOut, LeaseLost, RowsweepError
from rowsweep.signals import RunSignal

REASONS: list[RowsweepError] = [
    LeaseLost("Lost.", fix="rowsweep jobs show 1"),
    Draining("Draining.", fix='configure_lifecycle(deadline="60s")'),
    JobTimedOut("Too slow.", fix='timeout="1h"'),
    Aborted("Aborted.", fix="job.enqueue(input)"),
]
LOST, DRAIN, SLOW, STOP = REASONS


def listeners(signal: RunSignal) -> int:
    return len(signal._callbacks)


def test_the_first_reason_wins() -> None:
    """S-146."""
    signal = RunSignal()
    assert signal.reason is None
    assert signal.abort(LOST)
    assert not signal.abort(DRAIN)
    assert signal.aborted
    assert signal.reason is LOST


def test_an_aborted_signal_raises_interrupted_with_its_reason() -> None:
    """N-018, N-020."""
    signal = RunSignal()
    signal.raise_if_aborted()
    signal.abort(SLOW)
    with pytest.raises(Interrupted) as raised:
        signal.raise_if_aborted()
    assert raised.value.reason is SLOW
    assert raised.value.__cause__ is SLOW


def test_a_wait_ends_with_the_abort() -> None:
    """N-018."""
    signal = RunSignal()
    assert not signal.wait(0)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(signal.wait(30)), daemon=True)
    thread.start()
    signal.abort(STOP)
    thread.join(30)
    assert answers == [True]


def test_draining_is_no_abort() -> None:
    """N-018, S-294."""
    signal = RunSignal()
    signal.set_draining()
    assert signal.draining
    assert not signal.aborted
    assert signal.reason is None
    signal.raise_if_aborted()


def test_a_callback_runs_once_and_at_once_when_the_abort_has_come() -> None:
    """N-018."""
    signal, calls = RunSignal(), []
    signal.on_abort(lambda: calls.append("early"))
    signal.abort(STOP)
    signal.abort(LOST)
    remove = signal.on_abort(lambda: calls.append("late"))
    assert calls == ["early", "late"]
    remove()
    assert listeners(signal) == 0


def test_a_removed_callback_is_not_called_even_by_an_abort_that_is_under_way() -> None:
    """N-018: the earlier callback removes the later one."""
    signal, calls = RunSignal(), []
    removers: list[Callable[[], None]] = []
    signal.on_abort(lambda: [remove() for remove in removers])
    removers.append(signal.on_abort(lambda: calls.append("removed")))
    signal.on_abort(lambda: calls.append("kept"))
    signal.abort(STOP)
    assert calls == ["kept"]


@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_a_callback_that_raises_is_logged_and_the_next_one_runs(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    """N-018, N-020: whatever it raises, the thread that aborts is not its own."""
    signal, calls = RunSignal(), []

    def broken() -> None:
        raise error

    def abort() -> None:
        signal.abort(STOP)
        signal.on_abort(broken)

    signal.on_abort(broken)
    signal.on_abort(lambda: calls.append(1))
    with caplog.at_level(logging.ERROR, logger="rowsweep"):
        thread = threading.Thread(target=abort, daemon=True)
        thread.start()
        thread.join(10)
    assert calls == [1]
    assert [record.getMessage() for record in caplog.records] == ["signals.callback.failed"] * 2


def test_callbacks_run_outside_the_lock() -> None:
    """N-018: a callback may use the signal, also from another thread that it waits for."""
    signal, calls = RunSignal(), []

    def nested() -> None:
        thread = threading.Thread(target=lambda: signal.on_abort(lambda: calls.append(signal.reason)), daemon=True)
        thread.start()
        thread.join(10)

    signal.on_abort(nested)
    signal.abort(STOP)
    assert calls == [STOP]


def test_a_composed_signal_follows_its_parents_and_they_do_not_follow_it() -> None:
    """S-145."""
    worker, keeper = RunSignal(), RunSignal()
    with RunSignal.composed(worker, keeper) as run:
        keeper.abort(LOST)
        assert run.reason is LOST
        assert not worker.aborted
    with RunSignal.composed(worker) as run:
        run.abort(SLOW)
        assert not worker.aborted


def test_a_signal_composed_of_an_aborted_one_is_aborted_from_the_start() -> None:
    """S-145."""
    parent = RunSignal()
    parent.abort(DRAIN)
    assert RunSignal.composed(RunSignal(), parent).reason is DRAIN


def test_draining_reaches_a_composed_signal_until_it_is_disposed() -> None:
    """N-018, S-309."""
    drain = RunSignal()
    before, after = RunSignal.composed(RunSignal.composed(drain)), RunSignal.composed(drain)
    after.dispose()
    drain.set_draining()
    assert before.draining
    assert not after.draining
    before.dispose()
    assert before.draining


def test_a_process_long_signal_gathers_no_listeners() -> None:
    """S-145."""
    process = RunSignal()
    for number in range(100):
        run = RunSignal.composed(process, RunSignal())
        assert listeners(process) == 0
        if number % 2:
            run.wait(0)
        else:
            run.on_abort(lambda: None)
        assert listeners(process) == 1
        run.dispose()
        run.dispose()
    assert listeners(process) == 0


def test_the_parent_that_was_aborted_first_counts_however_late_it_is_asked_for() -> None:
    """S-145, S-146: nobody looked at the run in between."""
    worker, keeper = RunSignal(), RunSignal()
    run, ended, disposed = (RunSignal.composed(worker, keeper) for _ in range(3))
    keeper.abort(LOST)
    worker.abort(DRAIN)
    assert not ended.abort(STOP)
    disposed.dispose()
    assert [signal.reason for signal in (run, ended, disposed)] == [LOST] * 3


def test_what_waits_on_a_composed_signal_hears_of_an_abort_further_up() -> None:
    """S-145: through a signal that is composed itself, and that nobody waits for."""
    worker = RunSignal()
    run = RunSignal.composed(RunSignal.composed(worker))
    heard: list[RowsweepError | None] = []
    run.on_abort(lambda: heard.append(run.reason))
    worker.abort(DRAIN)
    assert heard == [DRAIN]


def test_of_many_aborts_at_once_one_wins_and_every_callback_runs_once() -> None:
    """S-146, under contention."""
    for _ in range(30):
        signal, calls, barrier = RunSignal(), Counter[int](), threading.Barrier(6)
        wins: list[RowsweepError] = []

        def abort(
            reason: RowsweepError,
            signal: RunSignal = signal,
            barrier: threading.Barrier = barrier,
            wins: list[RowsweepError] = wins,
        ) -> None:
            barrier.wait(10)
            if signal.abort(reason):
                wins.append(reason)

        def listen(
            signal: RunSignal = signal, barrier: threading.Barrier = barrier, calls: Counter[int] = calls
        ) -> None:
            barrier.wait(10)
            for number in range(50):
                signal.on_abort(partial(calls.update, [number]))

        threads = [threading.Thread(target=abort, args=(reason,), daemon=True) for reason in REASONS]
        threads += [threading.Thread(target=listen, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert wins == [signal.reason]
        assert calls == Counter(dict.fromkeys(range(50), 2))


@dataclass
class Modelled:
    """A composed signal beside what it must answer."""

    signal: RunSignal
    parents: list[int]
    reason: RowsweepError | None = None
    drained: bool = False
    is_live: bool = True


class Histories(RuleBasedStateMachine):
    """S-145, S-146: a run has the reason of the first parent to abort while it was composed, and no other."""

    def __init__(self) -> None:
        super().__init__()
        self.parents = [RunSignal() for _ in REASONS]
        self.runs: list[Modelled] = []

    @rule(parents=st.lists(st.integers(0, 3), min_size=1, unique=True))
    def compose(self, parents: list[int]) -> None:
        reasons = [self.parents[i].reason for i in parents if self.parents[i].aborted]
        signal = RunSignal.composed(*(self.parents[i] for i in parents))
        self.runs.append(Modelled(signal, parents, reasons[0] if reasons else None))

    @rule(parent=st.integers(0, 3))
    def abort(self, parent: int) -> None:
        is_first = self.parents[parent].abort(REASONS[parent])
        for run in self.runs:
            if is_first and run.is_live and parent in run.parents:
                run.reason = run.reason or REASONS[parent]

    @rule(parent=st.integers(0, 3))
    def drain(self, parent: int) -> None:
        self.parents[parent].set_draining()

    @precondition(lambda self: bool(self.runs))
    @rule(which=st.integers(0, 50))
    def dispose(self, which: int) -> None:
        run = self.runs[which % len(self.runs)]
        run.drained = self.expected_draining(run)
        run.is_live = False
        run.signal.dispose()

    @invariant()
    def the_model_agrees(self) -> None:
        for run in self.runs:
            assert run.signal.reason is run.reason
            assert run.signal.aborted == (run.reason is not None)
            assert run.signal.draining == self.expected_draining(run)
        if not any(run.is_live for run in self.runs):
            assert [listeners(parent) for parent in self.parents] == [0] * 4

    def expected_draining(self, run: Modelled) -> bool:
        return any(self.parents[i].draining for i in run.parents) if run.is_live else run.drained


TestHistories = Histories.TestCase
