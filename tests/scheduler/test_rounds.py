"""Rounds: what one does, joining one under way, arming, and tasks that fail."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rowsweep.errors import DriverUnavailable, InvalidOption
from rowsweep.queue.memory.driver import MemoryDriver
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.stores.schedules import ScheduledFire
from rowsweep.scheduler.leaders import LeaseLeader
from tests.scheduler.world import HOUR, Gate, Tower, fired, hourly, mail, wait_for


def logged(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [vars(record)["fields"] for record in caplog.records if record.message == event]


def test_a_task_first_seen_is_armed_and_never_fired_for_the_past(tower: Tower) -> None:
    """S-242."""
    hourly()
    assert tower.scheduler().tick() == []
    assert tower.state.last_fired_at("hourly") == datetime(2025, 1, 31, 8, 59, 59, 999_000, tzinfo=UTC)
    assert tower.jobs() == []


def test_an_occurrence_is_fired_when_its_time_has_come_and_once(tower: Tower) -> None:
    """S-240, S-247, S-434: a manual tick needs no start."""
    hourly()
    scheduler = tower.scheduler()
    scheduler.tick()
    tower.at("2025-01-31 08:59:59")
    assert scheduler.tick() == []
    tower.at("2025-01-31 09:00")
    (one,) = scheduler.tick()
    assert (one.task, one.occurrence_at, one.catch_up) == ("hourly", datetime(2025, 1, 31, 9, tzinfo=UTC), False)
    assert scheduler.tick() == []
    (kept,) = tower.jobs()
    assert [(name, result.id) for name, result in one.jobs if result is not None] == [("mail", kept.id)]
    assert (kept.idempotency_key, kept.input) == ("hourly:2025-01-31T09:00:00Z:0", "09:00")


def test_a_late_round_builds_the_payload_of_the_occurrence(tower: Tower) -> None:
    """S-223, S-237."""
    hourly(cron="59 23 * * *", enqueue=lambda at: [(mail(), f"{at:%d}")])
    tower.scheduler().tick()
    tower.at("2025-02-01 00:03")
    tower.scheduler().tick()
    assert tower.inputs() == ["31"]


def test_jobs_of_an_occurrence_go_in_together_in_their_order(tower: Tower) -> None:
    """S-224, S-250."""
    hourly(enqueue=lambda _at: [(mail(), letter) for letter in "cab"])
    scheduler = tower.scheduler()
    scheduler.tick()
    tower.at("2025-01-31 09:00")
    (one,) = scheduler.tick()
    ids = [result.id for _, result in one.jobs if result is not None]
    by_id = {kept.id: kept.input for kept in tower.jobs()}
    assert [by_id[job_id] for job_id in ids] == ["c", "a", "b"]


def test_an_occurrence_is_logged_with_its_jobs(tower: Tower, caplog: pytest.LogCaptureFixture) -> None:
    """S-250, D-31."""
    hourly()
    scheduler = tower.scheduler()
    scheduler.tick()
    tower.at("2025-01-31 09:00")
    with caplog.at_level(logging.INFO, "rowsweep"):
        scheduler.tick()
    (kept,) = tower.jobs()
    assert logged(caplog, "jobs.scheduler.dispatched") == [
        {
            "task": "hourly",
            "occurrence_at": "2025-01-31T09:00:00Z",
            "jobs": [("mail", str(kept.id))],
            "catch_up": False,
            "dropped": 0,
        }
    ]


@pytest.mark.parametrize(
    ("error", "text"),
    [(LookupError("no such customer"), "LookupError: no such customer"), (SystemExit(3), "SystemExit: 3")],
)
def test_a_task_that_raises_is_logged_and_keeps_its_watermark_while_the_next_one_fires(
    tower: Tower, caplog: pytest.LogCaptureFixture, error: BaseException, text: str
) -> None:
    """N-098, S-282."""
    working = [False]

    def enqueue(at: datetime) -> list[Any]:
        if not working[0]:
            raise error
        return [(mail(), "at last")]

    hourly("a-broken", enqueue=enqueue)
    hourly("b-sound")
    scheduler = tower.scheduler()
    scheduler.tick()
    tower.at("2025-01-31 09:00")
    with caplog.at_level(logging.ERROR, "rowsweep"):
        assert fired(scheduler.tick()) == ["b-sound 09:00"]
        assert scheduler.tick() == []
        (failure,) = logged(caplog, "jobs.scheduler.tick-failed")
        tower.pass_time(timedelta(minutes=1))
        scheduler.tick()
        assert len(logged(caplog, "jobs.scheduler.tick-failed")) == 2
    assert (failure["task"], failure["error"]) == ("a-broken", text)
    working[0] = True
    assert fired(scheduler.tick()) == ["a-broken 09:00"]


@pytest.mark.parametrize("answer", [None, [("mail", 1)], [(None, None)]])
def test_a_task_that_answers_no_pairs_keeps_its_watermark(memory: Tower, answer: Any) -> None:
    """N-098, S-224."""
    hourly(enqueue=lambda _at: answer)
    scheduler = memory.scheduler()
    scheduler.tick()
    memory.at("2025-01-31 09:00")
    before = memory.state.last_fired_at("hourly")
    assert scheduler.tick() == []
    assert memory.state.last_fired_at("hourly") == before


def test_an_input_that_the_job_refuses_is_the_tasks_failure(tower: Tower, caplog: pytest.LogCaptureFixture) -> None:
    """N-098: `code`, `cause` and `fix` where there are any."""
    hourly(enqueue=lambda _at: [(mail(), 7)])
    scheduler = tower.scheduler()
    scheduler.tick()
    tower.at("2025-01-31 09:00")
    with caplog.at_level(logging.ERROR, "rowsweep"):
        assert scheduler.tick() == []
    (failure,) = logged(caplog, "jobs.scheduler.tick-failed")
    assert failure["code"] == "X_JOB_INPUT_INVALID"
    assert failure["fix"]


def test_a_tick_during_a_round_joins_it_and_gets_its_result(memory: Tower) -> None:
    """S-238."""
    gate = Gate(lambda at: [(mail(), f"{at:%H:%M}")])
    hourly(enqueue=gate)
    scheduler, answers = memory.scheduler(), list[list[str]]()
    scheduler.tick()
    memory.at("2025-01-31 09:00")
    ticking = [threading.Thread(target=lambda: answers.append(fired(scheduler.tick()))) for _ in range(3)]
    ticking[0].start()
    assert gate.entered.wait(60)
    for thread in ticking[1:]:
        thread.start()
    wait_for(lambda: all(thread.is_alive() for thread in ticking))
    gate.go.set()
    for thread in ticking:
        thread.join(10)
    assert ["hourly 09:00"] in answers
    assert memory.inputs() == ["09:00"]


def test_a_round_that_failed_is_raised_to_all_who_joined_it_and_the_next_one_works(
    memory: Tower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-238, S-251."""
    hourly()
    scheduler = memory.scheduler()
    scheduler.tick()
    memory.at("2025-01-31 09:00")
    with monkeypatch.context() as broken:
        broken.setattr(memory.state, "fire", unavailable)
        with pytest.raises(DriverUnavailable):
            scheduler.tick()
    assert fired(scheduler.tick()) == ["hourly 09:00"]


def unavailable(*_: Any) -> Any:
    raise DriverUnavailable("the server went away", fix="wait")


def test_a_failed_round_is_logged_and_the_loop_goes_on(
    memory: Tower, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-251, S-237, S-253."""
    hourly()
    scheduler = memory.scheduler(gap="5ms")
    scheduler.tick()
    memory.at("2025-01-31 09:00")
    with caplog.at_level(logging.INFO, "rowsweep"):
        with monkeypatch.context() as broken:
            broken.setattr(memory.state, "fire", unavailable)
            scheduler.start()
            wait_for(lambda: len(logged(caplog, "jobs.scheduler.tick-failed")) > 1)
        wait_for(lambda: memory.inputs() == ["09:00"])
    assert logged(caplog, "jobs.scheduler.started") == [{"tasks": 1}]
    failure = logged(caplog, "jobs.scheduler.tick-failed")[0]
    assert (failure["code"], failure["cause"]) == ("X_DRIVER_UNAVAILABLE", "the server went away")
    assert "task" not in failure


def test_a_stale_watermark_is_read_anew_when_the_fence_does_not_fit(tower: Tower) -> None:
    """S-247, N-099."""
    hourly(catch_up="run-all")
    stale, other = tower.scheduler(), tower.scheduler()
    stale.tick()
    other.tick()
    tower.at("2025-01-31 10:00")
    assert fired(other.tick()) == ["hourly 09:00", "hourly 10:00"]
    assert stale.tick() == []
    tower.at("2025-01-31 11:00")
    assert fired(stale.tick()) == ["hourly 11:00"]
    assert tower.inputs() == ["09:00", "10:00", "11:00"]


def test_a_movement_that_the_server_lost_is_made_again(tower: Tower) -> None:
    """S-247, N-099: an occurrence that is gone with a restored server's last commits is not passed over."""
    hourly(catch_up="run-all")
    scheduler, other = tower.scheduler(), tower.scheduler()
    scheduler.tick()
    armed = tower.state.last_fired_at("hourly")
    assert armed is not None
    tower.at("2025-01-31 09:00")
    scheduler.tick()
    restore(tower, armed)
    tower.at("2025-01-31 10:00")
    assert scheduler.tick() == []
    assert fired(scheduler.tick()) == ["hourly 09:00", "hourly 10:00"]
    assert other.tick() == []


def restore(tower: Tower, watermark: datetime) -> None:
    """Put a watermark back, and take away the jobs that were fired since."""
    if isinstance(tower.driver, MemoryDriver):
        tower.driver._state.watermarks["hourly"] = watermark
        tower.driver._state.live.clear()
        tower.driver._state.jobs.clear()
        return
    with tower.driver.transaction() as tx:
        tx.connection.execute("update x_scheduler_state set watermark = %s", [watermark])
        tx.connection.execute("delete from x_jobs")


def test_a_watermark_that_was_taken_away_is_armed_anew(memory: Tower) -> None:
    """S-242."""
    hourly()
    scheduler = memory.scheduler()
    scheduler.tick()
    memory.driver._state.watermarks.clear()  # type: ignore[attr-defined]
    memory.at("2025-01-31 09:00")
    assert scheduler.tick() == []
    scheduler.tick()
    memory.at("2025-01-31 10:00")
    assert fired(scheduler.tick()) == ["hourly 10:00"]


def test_a_task_declared_again_is_due_by_its_new_cron(memory: Tower) -> None:
    """N-006."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    declare = "from tests.scheduler.world import hourly, mail\nimport rowsweep as rs\n"
    declare += "rs.task('moved', cron={!r}, tz='UTC', enqueue=lambda at: [(mail(), 'x')])"
    exec(declare.format("0 12 * * *"), namespace)
    scheduler = memory.scheduler()
    scheduler.tick()
    exec(declare.format("*/5 * * * *"), namespace)
    memory.at("2025-01-31 12:05")
    assert fired(scheduler.tick()) == ["moved 12:05"]


def test_the_next_run_of_a_task_comes_from_the_resolver_given(memory: Tower) -> None:
    """S-252, S-234, S-433."""
    task = hourly()
    assert memory.scheduler().next_run_for(task) == datetime(2025, 1, 31, 9, tzinfo=UTC)
    later = memory.clock.now() + 5 * HOUR
    assert memory.scheduler().next_run_for(task, later) == datetime(2025, 1, 31, 14, tzinfo=UTC)
    own = memory.scheduler(cron=lambda _cron, _tz, after: after + timedelta(minutes=7))
    assert own.next_run_for(task) == memory.clock.now() + timedelta(minutes=7)


def test_only_the_tasks_given_are_fired(memory: Tower) -> None:
    """S-236, S-433."""
    mine = hourly("mine")
    hourly("other")
    scheduler = memory.scheduler(tasks=[mine])
    scheduler.tick()
    memory.at("2025-01-31 09:00")
    assert fired(scheduler.tick()) == ["mine 09:00"]


def test_a_driver_without_schedules_is_given_watermarks_of_this_process(memory: Tower) -> None:
    """S-236, S-057."""
    from dataclasses import replace

    class Plain:
        name = "plain"

        def control(self) -> Any:
            return replace(memory.driver.control(), schedules=None)

    hourly(catch_up="run-all")
    scheduler = memory.scheduler(driver=Plain())
    scheduler.tick()
    memory.at("2025-01-31 10:00")
    assert fired(scheduler.tick()) == ["hourly 09:00", "hourly 10:00"]
    assert scheduler.tick() == []
    assert (memory.inputs(), memory.state.watermarks()) == (["09:00", "10:00"], {})


def test_what_was_fired_is_told(memory: Tower) -> None:
    """S-250."""
    hourly()
    told: list[Any] = []
    scheduler = memory.scheduler(on_dispatched=told.append)
    scheduler.tick()
    memory.at("2025-01-31 09:00")
    assert scheduler.tick() == told


@pytest.mark.parametrize("given", [{"gap": 1}, {"gap": "0s"}, {"cron": "0 9 * * *"}])
def test_options_that_make_no_sense_are_refused(memory: Tower, given: dict[str, Any]) -> None:
    """D-37."""
    with pytest.raises(InvalidOption):
        memory.scheduler(**given)


def test_a_fire_carries_its_watermark(memory: Tower, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-244: in the fire itself, never in a mark after it."""
    hourly(catch_up="run-once")
    scheduler, seen, fire = memory.scheduler(), list[ScheduledFire](), memory.state.fire
    scheduler.tick()

    def watched(one: ScheduledFire) -> Any:
        seen.append(one)
        return fire(one)

    monkeypatch.setattr(memory.state, "fire", watched)
    memory.at("2025-01-31 12:30")
    scheduler.tick()
    (one,) = seen
    assert (one.occurrence_at.hour, one.watermark_at) == (9, memory.clock.now())


def test_behind_a_pooler_a_scheduler_fires_under_its_lease(postgres: Tower, dsn: str) -> None:
    """N-023, S-255."""
    driver = PostgresDriver(dsn, pooler=True)
    hourly()
    scheduler = postgres.scheduler(driver=driver, leader=LeaseLeader(driver))
    scheduler.tick()
    postgres.at("2025-01-31 09:00")
    assert fired(scheduler.tick()) == ["hourly 09:00"]
    assert postgres.inputs() == ["09:00"]
    scheduler.stop()
    driver.close()
