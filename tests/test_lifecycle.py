"""The end of a process: phases, budget, hooks, and the one wait."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta

import pytest

from rowsweep.clock import real_monotonic
from rowsweep.errors import Draining, InvalidOption
from rowsweep.lifecycle import HookPhase, Lifecycle, Pending, Shutdown, configure_lifecycle, lifecycle, wait_all_by

PHASES: tuple[HookPhase, ...] = ("accept", "close")


def started(body: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread


def noting(calls: list[object], note: str) -> Callable[[Shutdown], object]:
    return lambda _: calls.append(note)


def run_python(code: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.stdout


def test_accept_hooks_run_in_order_and_close_hooks_in_reverse() -> None:
    """D-32."""
    cycle, calls = Lifecycle(), list[object]()
    for name in ("a", "b", "c"):
        cycle.on("accept", name, noting(calls, f"accept {name}"))
        cycle.on("close", name, noting(calls, f"close {name}"))
    cycle.shutdown("stop")
    assert calls == ["accept a", "accept b", "accept c", "close c", "close b", "close a"]
    assert cycle.readiness() == {"ready": False, "phase": "closed", "in_flight": 0}


def test_every_hook_is_given_the_reason_and_one_real_deadline() -> None:
    """D-32, S-010."""
    cycle, given = Lifecycle(deadline=timedelta(seconds=40)), list[Shutdown]()
    cycle.on("accept", "a", given.append)
    cycle.on("close", "a", given.append)
    before = real_monotonic()
    cycle.shutdown("SIGTERM")
    assert given[0] is given[1]
    assert given[0].reason == "SIGTERM"
    assert given[0].deadline_at is not None
    assert before + 40 <= given[0].deadline_at <= real_monotonic() + 40


def test_work_in_flight_is_waited_for_before_anything_closes() -> None:
    """D-32, S-302."""
    cycle, calls = Lifecycle(), list[object]()
    finish, accepting = cycle.begin_work(), threading.Event()
    cycle.on("accept", "a", lambda _: accepting.set())
    cycle.on("close", "c", lambda _: calls.append(cycle.readiness()))
    thread = started(lambda: cycle.shutdown("stop"))
    assert accepting.wait(30)
    assert cycle.readiness()["in_flight"] == 1
    assert calls == []
    finish()
    thread.join(30)
    assert calls == [{"ready": False, "phase": "close", "in_flight": 0}]


def test_a_past_deadline_closes_although_work_is_in_flight() -> None:
    """D-32."""
    cycle, calls = Lifecycle(deadline="10ms"), list[object]()
    cycle.begin_work()
    cycle.on("close", "c", lambda _: calls.append("closed"))
    cycle.shutdown("stop")
    assert calls == ["closed"]
    assert cycle.readiness()["in_flight"] == 1


def test_a_piece_of_work_finishes_once() -> None:
    """D-32."""
    cycle = Lifecycle()
    finish, other = cycle.begin_work(), cycle.begin_work()
    finish()
    finish()
    assert cycle.readiness() == {"ready": True, "phase": "running", "in_flight": 1}
    other()
    assert cycle.readiness()["in_flight"] == 0


def test_a_hook_that_raises_is_logged_and_the_next_one_runs(caplog: pytest.LogCaptureFixture) -> None:
    """D-32."""
    cycle, calls = Lifecycle(), list[object]()

    def broken(_: Shutdown) -> None:
        raise RuntimeError("no")

    for phase in PHASES:
        cycle.on(phase, "broken", broken)
        cycle.on(phase, "next", noting(calls, phase))
        cycle.on(phase, "broken", broken)
    with caplog.at_level(logging.ERROR, logger="rowsweep"):
        cycle.shutdown("stop")
    assert calls == ["accept", "close"]
    assert [record.getMessage() for record in caplog.records] == ["lifecycle.hook.failed"] * 4


def test_later_calls_join_the_first() -> None:
    """D-32."""
    cycle, calls = Lifecycle(), list[str]()
    entered, release = threading.Event(), threading.Event()

    def slow(shutdown: Shutdown) -> None:
        calls.append(shutdown.reason)
        entered.set()
        release.wait(30)

    cycle.on("close", "slow", slow)
    first = started(lambda: cycle.shutdown("first"))
    assert entered.wait(30)
    second = started(lambda: cycle.shutdown("second"))
    second.join(0.05)
    assert second.is_alive()
    release.set()
    assert wait_all_by([first, second], real_monotonic() + 30)
    cycle.shutdown("third")
    assert calls == ["first"]


def test_a_hook_that_asks_for_the_shutdown_it_runs_in_does_not_wait_for_itself() -> None:
    """D-32."""
    cycle, calls = Lifecycle(), list[object]()

    def again(_: Shutdown) -> None:
        cycle.shutdown("again")
        calls.append("again")

    cycle.on("close", "again", again)
    cycle.shutdown("stop")
    assert calls == ["again"]


def test_a_removed_hook_does_not_run_even_when_another_hook_removes_it() -> None:
    """D-32, S-308."""
    cycle, calls = Lifecycle(), list[object]()
    remove = cycle.on("close", "worker", lambda _: calls.append("worker"))
    other = cycle.on("accept", "worker", lambda _: calls.append("worker"))
    cycle.on("close", "app", lambda _: remove())
    assert cycle.names("accept") == ["worker"]
    other()
    other()
    assert cycle.names("accept") == []
    cycle.shutdown("stop")
    assert calls == []


def test_nothing_can_join_a_process_that_is_ending() -> None:
    """D-32."""
    cycle, refused = Lifecycle(), list[str]()

    def late(_: Shutdown) -> None:
        with pytest.raises(Draining) as error:
            cycle.on("close", "late", print)
        refused.append(error.value.code)

    cycle.on("accept", "a", late)
    cycle.shutdown("stop")
    assert refused == ["X_DRAINING"]


def test_a_wrong_phase_or_budget_is_refused() -> None:
    """D-37."""
    with pytest.raises(InvalidOption, match="'phase'"):
        Lifecycle().on("acept", "a", print)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption) as error:
        Lifecycle(deadline=25)  # type: ignore[arg-type]
    assert error.value.fix == 'deadline="25s"'


def test_the_process_has_one_lifecycle_until_it_has_closed() -> None:
    """D-32, S-311: the drain's budget, 25 s unless configured."""
    configure_lifecycle(deadline="40s")
    first = lifecycle()
    assert lifecycle() is first
    first.shutdown("stop")
    second = lifecycle()
    assert second is not first
    assert second.budget == timedelta(seconds=40)
    configure_lifecycle()
    assert second.budget == timedelta(seconds=25)


def test_leaving_the_interpreter_shuts_down_and_an_abandoned_body_does_not_hold_it() -> None:
    """N-004, N-005, S-317."""
    out = run_python("""
        import threading
        from rowsweep.lifecycle import configure_lifecycle, lifecycle, wait_all_by
        configure_lifecycle(deadline="50ms")
        lifecycle().begin_work()
        body = threading.Thread(target=threading.Event().wait, daemon=True, name="rowsweep-body")
        body.start()
        lifecycle().on("close", "app", lambda s: print(s.reason, wait_all_by([body], s.deadline_at)))
    """)
    assert out == "exit False\n"


def test_a_forked_child_never_runs_its_parents_hooks() -> None:
    """N-002."""
    out = run_python("""
        import os, sys
        from rowsweep.lifecycle import lifecycle
        lifecycle().on("close", "app", lambda s: print("closed by", "parent" if os.getpid() == parent else "child"))
        parent = os.getpid()
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
    """)
    assert out == "closed by parent\n"


def settled_future(error: BaseException | None = None) -> Future[object]:
    future: Future[object] = Future()
    future.set_exception(error) if error else future.set_result(None)
    return future


class Broken:
    def wait(self, timeout: float | None = None) -> bool:
        raise RuntimeError("it failed")


def test_nothing_pending_has_settled_at_once() -> None:
    """S-313."""
    assert wait_all_by([], None)
    assert wait_all_by([], real_monotonic() - 1)


def test_what_has_settled_counts_after_the_deadline() -> None:
    """S-316."""
    event, past = threading.Event(), real_monotonic() - 1
    event.set()
    thread = started(lambda: None)
    thread.join(30)
    assert wait_all_by([event, thread, settled_future()], past)
    assert not wait_all_by([event, threading.Event()], past)
    assert not wait_all_by([Future()], past)


def test_failed_and_cancelled_work_is_finished_work() -> None:
    """S-315."""
    cancelled: Future[object] = Future()
    cancelled.cancel()
    pending: list[Pending] = [settled_future(RuntimeError("no")), cancelled, Broken()]
    assert wait_all_by(pending, real_monotonic() - 1)


def test_the_deadline_comes_first_when_one_does_not_settle() -> None:
    """S-313."""
    event = threading.Event()
    event.set()
    assert not wait_all_by(iter([event, threading.Event()]), real_monotonic() + 0.02)


def test_no_deadline_waits_for_as_long_as_it_takes() -> None:
    """S-314."""
    future: Future[object] = Future()
    answers: list[bool] = []
    waiter = started(lambda: answers.append(wait_all_by([future], None)))
    waiter.join(0.05)
    assert waiter.is_alive()
    future.set_result(None)
    waiter.join(30)
    assert answers == [True]


def test_a_far_deadline_is_a_deadline() -> None:
    event = threading.Event()
    event.set()
    assert wait_all_by([event], real_monotonic() + 1e300)
