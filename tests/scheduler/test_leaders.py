"""One scheduler leads: leases, advisory locks, and what happens when the lead is lost."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from rowsweep.errors import InvalidOption, NotImplementedByDriver
from rowsweep.jobs.tasks.registry import reset_tasks
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.scheduler.leaders import AdvisoryLockLeader, LeaseLeader, SoleLeader
from tests.scheduler.world import HOUR, Gate, Tower, fired, hourly, mail, wait_for


class Scripted:
    """A leader that answers what it is told to, and counts how often it is asked."""

    def __init__(self, *answers: bool, renew_every: timedelta = timedelta(0)) -> None:
        self.answers = list(answers)
        self.renew_every = renew_every
        self.asked = 0
        self.released = 0

    def acquire(self) -> bool:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def release(self) -> None:
        self.released += 1


def two(tower: Tower) -> tuple[Any, Any]:
    """Make two schedulers, each with a lease of its own to ask for."""
    return tower.scheduler(leader=LeaseLeader(tower.driver)), tower.scheduler(leader=LeaseLeader(tower.driver))


def test_a_sole_leader_always_leads() -> None:
    """S-256."""
    leader = SoleLeader()
    assert (leader.acquire(), leader.acquire(), leader.renew_every) == (True, True, timedelta(0))
    leader.release()


def test_one_of_two_schedulers_dispatches(tower: Tower) -> None:
    """S-255, S-270."""
    hourly()
    first, second = two(tower)
    first.tick()
    second.tick()
    assert (first.is_leading, second.is_leading) == (True, False)
    tower.at("2025-01-31 09:00")
    assert second.tick() == []
    assert fired(first.tick()) == ["hourly 09:00"]


def test_a_standby_takes_over_when_the_leader_has_stopped(tower: Tower) -> None:
    """S-258, S-263, S-270: a rolling update."""
    hourly()
    first, second = two(tower)
    first.tick()
    second.tick()
    first.stop()
    tower.at("2025-01-31 09:00")
    tower.pass_time(timedelta(seconds=10))
    assert fired(second.tick()) == ["hourly 09:00"]
    assert tower.inputs() == ["09:00"]


def test_a_standby_takes_over_when_the_leaders_lease_has_expired(memory: Tower) -> None:
    """S-255."""
    hourly()
    first, second = two(memory)
    first.tick()
    second.tick()
    memory.at("2025-01-31 09:00")
    memory.pass_time(timedelta(seconds=31))
    assert fired(second.tick()) == ["hourly 09:00"]
    assert first.tick() == []
    assert not first.is_leading


def test_leadership_is_asked_once_in_its_interval_and_answered_from_memory(memory: Tower) -> None:
    """S-259, S-386: two hundred tasks cost one question."""
    for number in range(200):
        hourly(f"t{number:03}")
    leader = Scripted(True, renew_every=timedelta(seconds=10))
    scheduler = memory.scheduler(leader=leader)
    for _ in range(10):
        scheduler.tick()
        memory.pass_time(timedelta(seconds=1))
    assert leader.asked == 1
    scheduler.tick()
    assert leader.asked == 2


def test_a_standby_asks_no_more_often_than_a_leader(memory: Tower) -> None:
    """S-259, S-385."""
    leader = Scripted(False, renew_every=timedelta(seconds=10))
    scheduler = memory.scheduler(leader=leader)
    for _ in range(30):
        scheduler.tick()
        memory.pass_time(timedelta(seconds=1))
    assert leader.asked == 3


def test_leadership_is_asked_before_every_task_and_a_task_not_reached_fires_next_time(memory: Tower) -> None:
    """S-241, S-261."""
    for name in ("a", "b", "c"):
        hourly(name)
    leader = Scripted(True)
    scheduler = memory.scheduler(leader=leader)
    scheduler.tick()
    memory.at("2025-01-31 09:00")
    leader.answers = [True, True, True, False]
    assert fired(scheduler.tick()) == ["a 09:00", "b 09:00"]
    leader.answers = [True]
    assert fired(scheduler.tick()) == ["c 09:00"]


def test_leadership_is_asked_before_each_missed_occurrence(memory: Tower) -> None:
    """S-261: a walk through many of one task may outlast the lease."""
    hourly(catch_up="run-all")
    leader = Scripted(True)
    scheduler = memory.scheduler(leader=leader)
    scheduler.tick()
    memory.at("2025-01-31 13:00")
    leader.answers = [True, True, True, False]
    assert fired(scheduler.tick()) == ["hourly 09:00", "hourly 10:00"]
    leader.answers = [True]
    assert fired(scheduler.tick()) == ["hourly 11:00", "hourly 12:00", "hourly 13:00"]


def test_losing_the_lead_is_logged_once_and_releases_nothing(memory: Tower, caplog: pytest.LogCaptureFixture) -> None:
    """S-260, D-31."""
    leader = Scripted(True, False)
    scheduler = memory.scheduler(leader=leader)
    with caplog.at_level(logging.INFO, "rowsweep"):
        for _ in range(3):
            scheduler.tick()
    (lost,) = [record for record in caplog.records if record.message == "jobs.scheduler.leadership-lost"]
    assert (lost.levelname, vars(lost)["fields"]) == ("WARNING", {"at": "2025-01-31T08:30:00Z"})
    scheduler.stop()
    assert leader.released == 0


def test_watermarks_are_read_once_when_the_lead_is_gained(memory: Tower, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-099."""
    reads, read = list[int](), memory.state.watermarks

    def watched() -> Any:
        reads.append(1)
        return read()

    monkeypatch.setattr(memory.state, "watermarks", watched)
    scheduler = memory.scheduler(leader=Scripted(False, True, True, False, True))
    after = []
    for _ in range(6):
        scheduler.tick()
        after.append(len(reads))
    assert after == [0, 1, 1, 1, 2, 2]


def test_a_leader_that_was_away_does_not_fire_what_its_follower_did(tower: Tower) -> None:
    """S-247, N-099: the lead is lost in the middle of a walk, and the fence holds."""
    gate = Gate(lambda at: [(mail(), f"{at:%H:%M}")])
    slow = hourly(enqueue=gate)
    reset_tasks()
    away, follower = tower.scheduler(tasks=[slow]), tower.scheduler(tasks=[hourly()])
    away.tick()
    follower.tick()
    tower.at("2025-01-31 09:00")
    answers: list[Any] = []
    walking = threading.Thread(target=lambda: answers.append(away.tick()))
    walking.start()
    assert gate.entered.wait(60)
    assert fired(follower.tick()) == ["hourly 09:00"]
    gate.go.set()
    walking.join(10)
    assert answers == [[]]
    assert tower.inputs() == ["09:00"]
    tower.at("2025-01-31 10:00")
    assert fired(away.tick()) == ["hourly 10:00"]


@pytest.mark.parametrize("given", [{"renew_every": "11s"}, {"renew_every": "0s"}, {"lease": "3"}])
def test_a_lease_that_could_not_be_kept_is_refused(memory: Tower, given: dict[str, Any]) -> None:
    """D-15, D-37."""
    with pytest.raises(InvalidOption):
        LeaseLeader(memory.driver, **given)


def test_the_lease_is_thirty_seconds_renewed_every_ten(memory: Tower) -> None:
    """D-15."""
    leader = LeaseLeader(memory.driver)
    assert leader.renew_every == timedelta(seconds=10)
    leader.acquire()
    held = memory.driver.stores().leader.get("scheduler")  # type: ignore[union-attr]
    assert held is not None
    assert held.holder == leader.holder
    assert held.expires_at - held.acquired_at == timedelta(seconds=30)


def test_one_session_holds_the_advisory_lock(postgres: Tower) -> None:
    """S-257."""
    first, second = AdvisoryLockLeader(postgres.driver), AdvisoryLockLeader(postgres.driver)
    other = AdvisoryLockLeader(postgres.driver, "another")
    assert (first.acquire(), second.acquire(), other.acquire()) == (True, False, True)
    assert [first.acquire() for _ in range(3)] == [True] * 3
    first.release()
    assert second.acquire()
    second.release()
    other.release()


def test_a_scheduler_of_another_schema_has_another_lock(postgres: Tower, server_dsn: str) -> None:
    """S-257: advisory locks are the database's, not the schema's."""
    first = AdvisoryLockLeader(postgres.driver)
    assert first.acquire()
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute("create schema elsewhere_locks")
        other = PostgresDriver(server_dsn, schema="elsewhere_locks")
        other.install()
        second = AdvisoryLockLeader(other)
        assert second.acquire()
        second.release()
        other.close()
        connection.execute("set client_min_messages = warning")
        connection.execute("drop schema elsewhere_locks cascade")
    first.release()


def test_a_lock_whose_connection_was_ended_is_taken_anew_or_lost(
    postgres: Tower, connection: psycopg.Connection[Any]
) -> None:
    """S-257: the server gives the lock back with the session."""
    first, second = AdvisoryLockLeader(postgres.driver), AdvisoryLockLeader(postgres.driver)
    assert first.acquire()
    end_lockers(connection)
    assert first.acquire()
    end_lockers(connection)
    assert second.acquire()
    assert not first.acquire()
    second.release()
    first.release()


def end_lockers(connection: psycopg.Connection[Any]) -> None:
    """End the sessions that hold an advisory lock."""
    connection.execute("select pg_terminate_backend(pid, 5000) from pg_locks where locktype = 'advisory'")


def test_behind_a_pooler_and_without_sessions_an_advisory_lock_is_refused(dsn: str, memory: Tower) -> None:
    """S-257, N-023."""
    driver = PostgresDriver(dsn, pooler=True)
    with pytest.raises(InvalidOption, match="pooler"):
        AdvisoryLockLeader(driver)
    driver.close()
    with pytest.raises(NotImplementedByDriver):
        AdvisoryLockLeader(memory.driver)


def test_schedulers_over_advisory_locks_dispatch_once(postgres: Tower) -> None:
    """S-257, S-270."""
    hourly()
    first = postgres.scheduler(leader=AdvisoryLockLeader(postgres.driver))
    second = postgres.scheduler(leader=AdvisoryLockLeader(postgres.driver))
    first.tick()
    second.tick()
    postgres.at("2025-01-31 09:00")
    assert (second.tick(), fired(first.tick())) == ([], ["hourly 09:00"])


def _fired(tower: Tower, times: int) -> bool:
    return len(tower.jobs()) == times


@pytest.mark.slow
def test_every_connection_of_a_scheduler_may_be_cut_at_any_time(dsn: str, connection: psycopg.Connection[Any]) -> None:
    """N-024, N-098: the round goes on over new ones; each occurrence is fired once."""
    driver = PostgresDriver(make_conninfo(dsn, application_name="cut"))
    driver.install()
    tower = Tower(driver)
    hourly()
    scheduler = tower.scheduler(leader=LeaseLeader(driver))
    try:
        scheduler.tick()
        scheduler.start()
        for hour in range(1, 7):
            connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'cut'")
            tower.pass_time(HOUR)
            wait_for(partial(_fired, tower, hour))
        assert len(set(tower.inputs())) == 6
        assert scheduler.state == "running"
    finally:
        tower.close()
        driver.close()
