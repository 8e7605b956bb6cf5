"""Starting, stopping and draining a scheduler."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rowsweep.clock import real_monotonic
from rowsweep.errors import Draining, DriverUnavailable
from rowsweep.lifecycle import Lifecycle
from tests.scheduler.test_leaders import Scripted
from tests.scheduler.world import Gate, Tower, fired, hourly, mail, wait_for


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    found = [(record.message, vars(record).get("fields", {})) for record in caplog.records]
    return [(message, fields) for message, fields in found if message.startswith("jobs.scheduler.")]


def caught(tower: Tower, **given: Any) -> tuple[Any, Gate, threading.Thread]:
    """Catch a scheduler in the middle of a round that fires one occurrence."""
    gate = Gate(lambda at: [(mail(), f"{at:%H:%M}")])
    hourly("a-gated", enqueue=gate)
    hourly("b-next")
    scheduler = tower.scheduler(**given)
    scheduler.start()
    wait_for(lambda: len(tower.state.watermarks()) == 2)
    tower.at("2025-01-31 09:00")
    assert gate.entered.wait(60)
    return scheduler, gate, threading.Thread(target=scheduler.stop)


def test_states(memory: Tower) -> None:
    """S-239."""
    scheduler, states = memory.scheduler(), []
    steps: list[Callable[[], None]] = [
        lambda: None,
        scheduler.start,
        scheduler.start,
        scheduler.stop,
        scheduler.stop,
        scheduler.start,
    ]
    for step in steps:
        step()
        states.append(scheduler.state)
    assert states == ["idle", "running", "running", "stopped", "stopped", "running"]


def test_one_that_never_started_stops_without_a_word(memory: Tower, caplog: pytest.LogCaptureFixture) -> None:
    """S-268."""
    with caplog.at_level(logging.INFO, "rowsweep"):
        memory.scheduler().stop()
    assert events(caplog) == []


def test_one_that_only_ticked_gives_the_lead_back(memory: Tower) -> None:
    """S-240, S-263."""
    leader = Scripted(True)
    scheduler = memory.scheduler(leader=leader)
    scheduler.tick()
    scheduler.stop()
    assert (leader.released, scheduler.is_leading, scheduler.tick()) == (1, False, [])


def test_a_started_scheduler_fires_by_itself_and_fires_again_after_a_restart(tower: Tower) -> None:
    """S-236, S-239."""
    hourly()
    scheduler = tower.scheduler()
    scheduler.start()
    wait_for(lambda: tower.state.last_fired_at("hourly"))
    tower.at("2025-01-31 09:00")
    wait_for(lambda: tower.inputs() == ["09:00"])
    scheduler.stop()
    tower.at("2025-01-31 10:00")
    assert scheduler.tick() == []
    scheduler.start()
    wait_for(lambda: tower.inputs() == ["09:00", "10:00"])


def test_a_stop_waits_out_the_round_and_then_releases(memory: Tower) -> None:
    """S-263, S-241: the task not reached keeps its watermark."""
    leader = Scripted(True)
    scheduler, gate, stopping = caught(memory, leader=leader)
    stopping.start()
    wait_for(lambda: scheduler.state == "draining")
    assert leader.released == 0
    gate.go.set()
    stopping.join(10)
    assert (leader.released, scheduler.state, memory.inputs()) == (1, "stopped", ["09:00"])
    successor = memory.scheduler()
    assert fired(successor.tick()) == ["b-next 09:00"]


def test_concurrent_stops_join_one_teardown(memory: Tower) -> None:
    """S-268."""
    leader = Scripted(True)
    scheduler, gate, stopping = caught(memory, leader=leader)
    others = [threading.Thread(target=scheduler.stop) for _ in range(3)]
    for thread in (stopping, *others):
        thread.start()
    wait_for(lambda: scheduler.state == "draining")
    gate.go.set()
    for thread in (stopping, *others):
        thread.join(10)
        assert not thread.is_alive()
    assert leader.released == 1


def test_a_round_that_begins_while_draining_ends_before_it_acquires(memory: Tower) -> None:
    """S-262, S-266."""
    phases, leader = Lifecycle(), Scripted(True)
    scheduler = memory.scheduler(leader=leader, lifecycle=phases, gap="1h")
    scheduler.start()
    wait_for(lambda: leader.asked)
    asked = leader.asked
    scheduler._accept(type("Shutdown", (), {"reason": "SIGTERM", "deadline_at": None})())
    assert (scheduler.state, scheduler.tick(), leader.asked, leader.released) == ("draining", [], asked, 0)


def test_a_shutdown_stops_dispatching_then_waits_and_releases(memory: Tower, caplog: pytest.LogCaptureFixture) -> None:
    """S-266, S-425, D-31."""
    hourly()
    phases, leader = Lifecycle(), Scripted(True)
    scheduler = memory.scheduler(leader=leader, lifecycle=phases)
    with caplog.at_level(logging.INFO, "rowsweep"):
        scheduler.start()
        assert (phases.names("accept"), phases.names("close")) == (["jobs.scheduler.accept"], ["jobs.scheduler"])
        wait_for(lambda: scheduler.is_leading)
        phases.shutdown("SIGTERM")
    assert (scheduler.state, leader.released) == ("stopped", 1)
    (started, draining) = events(caplog)
    assert started == ("jobs.scheduler.started", {"tasks": 1})
    assert draining[0] == "jobs.scheduler.draining"
    assert draining[1]["reason"] == "SIGTERM"


def test_a_round_that_outlasts_the_deadline_is_abandoned_and_keeps_the_lead(
    memory: Tower, caplog: pytest.LogCaptureFixture
) -> None:
    """S-265, S-267."""
    leader = Scripted(True)
    scheduler, gate, _ = caught(memory, leader=leader)
    with caplog.at_level(logging.INFO, "rowsweep"):
        scheduler.stop("SIGTERM", deadline_at=real_monotonic() + 0.05)
    assert (scheduler.state, scheduler.is_leading, leader.released) == ("stopped", False, 0)
    (draining, abandoned) = events(caplog)
    assert draining[1] == {"reason": "SIGTERM", "dispatching": True}
    assert abandoned[0] == "jobs.scheduler.drain-abandoned"
    assert abandoned[1]["reason"] == "SIGTERM"
    assert "configure_lifecycle" in abandoned[1]["fix"]
    gate.go.set()
    wait_for(lambda: memory.inputs() == ["09:00"])
    wait_for(lambda: scheduler._round is None)
    assert memory.inputs() == ["09:00"]


def test_a_round_that_fails_while_stopping_is_settled_and_the_lead_released(
    memory: Tower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-264."""
    leader = Scripted(True)
    scheduler, gate, stopping = caught(memory, leader=leader)

    def unavailable(*_: Any) -> Any:
        raise DriverUnavailable("the server went away", fix="wait")

    monkeypatch.setattr(memory.state, "fire", unavailable)
    stopping.start()
    wait_for(lambda: scheduler.state == "draining")
    gate.go.set()
    stopping.join(10)
    assert (leader.released, scheduler.state, memory.inputs()) == (1, "stopped", [])


def test_a_lead_that_cannot_be_given_back_still_ends_the_scheduler(memory: Tower) -> None:
    """S-267, S-266: flag, state and hooks, even so."""

    class Stuck(Scripted):
        def release(self) -> None:
            raise DriverUnavailable("the server went away", fix="wait")

    phases = Lifecycle()
    scheduler = memory.scheduler(leader=Stuck(True), lifecycle=phases)
    scheduler.start()
    wait_for(lambda: scheduler.is_leading)
    with pytest.raises(DriverUnavailable):
        scheduler.stop()
    assert (scheduler.state, scheduler.is_leading) == ("stopped", False)
    assert (phases.names("accept"), phases.names("close")) == ([], [])


def test_without_drain_on_shutdown_there_are_no_hooks(memory: Tower) -> None:
    """S-269."""
    phases = Lifecycle()
    memory.scheduler(lifecycle=phases, drain_on_shutdown=False).start()
    assert (phases.names("accept"), phases.names("close")) == ([], [])


def test_while_the_process_shuts_down_nothing_starts(memory: Tower) -> None:
    """D-32."""
    phases = Lifecycle()
    phases.shutdown("SIGTERM")
    scheduler = memory.scheduler(lifecycle=phases)
    with pytest.raises(Draining):
        scheduler.start()
    assert scheduler.state == "idle"
