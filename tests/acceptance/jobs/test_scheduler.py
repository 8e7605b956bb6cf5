"""Three schedulers over one database, disturbed at random for simulated days: every occurrence is accounted for."""

from __future__ import annotations

import logging
import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.embedded import EmbeddedServer
from rowsweep.jobs.registry import reset_jobs
from rowsweep.jobs.tasks.handle import occurrence_text
from rowsweep.jobs.tasks.occurrences import next_occurrence
from rowsweep.jobs.tasks.registry import reset_tasks
from rowsweep.testing.clock import FakeClock
from tests.acceptance.harness import Process, Site, until
from tests.acceptance.jobs import clockwork

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

SCRIPT = Path(clockwork.__file__)
LEASE, RENEW_EVERY, LEASE_SECONDS = "600ms", "150ms", 0.6
STANDING_BY = 3
STARTING_SECONDS = 2.0
TICK = timedelta(microseconds=1)
_said = logging.getLogger("storm")

# Each job is finished as it arrives, so that no key of a live one hides a second dispatch; and each movement of a
# watermark is kept with the transaction it was made in.
WITNESS = """
create table fired (number bigint generated always as identity, xid xid8 not null, key text not null);
create table moved (number bigint generated always as identity, xid xid8 not null, task text not null,
                    former timestamptz not null, latter timestamptz not null);
create table led (number bigint generated always as identity, holder text not null);

create function finish() returns trigger language plpgsql as $$
begin
  insert into fired (xid, key) values (pg_current_xact_id(), new.idempotency_key);
  new.state := 'done';
  return new;
end $$;
create trigger finish before insert on x_jobs for each row execute function finish();

create function note_move() returns trigger language plpgsql as $$
begin
  insert into moved (xid, task, former, latter) values (pg_current_xact_id(), new.task, old.watermark, new.watermark);
  return null;
end $$;
create trigger note_move after update on x_scheduler_state for each row execute function note_move();

create function note_lead() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' or new.holder <> old.holder then insert into led (holder) values (new.holder); end if;
  return null;
end $$;
create trigger note_lead after insert or update on x_scheduler_leader for each row execute function note_lead();
"""


@dataclass
class Weather:
    """Disturb three schedulers so many times, whichever leads more often than the others."""

    site: Site
    speed: float
    more: list[str] = field(default_factory=list)
    _names: Any = field(default_factory=count)

    def __post_init__(self) -> None:
        seed = os.environ.get("ROWSWEEP_STORM")
        self.seed = secrets.randbits(32) if seed is None else int(seed)
        self.random = random.Random(self.seed)
        self.since = time.time() + STARTING_SECONDS
        self.clock = clockwork.FastClock(self.since, self.speed)

    def rage(self, *, times: int) -> None:
        """Do it all, with moments of calm between, and kill what is left."""
        _said.warning("ROWSWEEP_STORM=%s", self.seed)
        for _ in range(STANDING_BY):
            self.start()
        until(lambda: self.site.one("select count(*) as n from x_scheduler_state")["n"] == 5, self.site.shown)
        for _ in range(times):
            time.sleep(self.random.uniform(0.0, 0.3))
            self.random.choice([self._kill, self._stop, self._cut_off, self._cut_off_for_long])(self._chosen())
        for process in self._running():
            process.kill()

    def start(self) -> None:
        """Start one more scheduler."""
        given = ["--since", str(self.since), "--speed", str(self.speed), "--lease", LEASE, "--renew-every", RENEW_EVERY]
        self.site.start(f"s{next(self._names)}", [str(SCRIPT), *given, *self.more])

    def _running(self) -> list[Process]:
        return [process for process in self.site.processes if process.code is None]

    def _chosen(self) -> Process:
        """Choose the leader three times out of four; one that was cut off while it connected is started anew."""
        while len(self._running()) < STANDING_BY:
            self.start()
        holder = self.site.connection.execute("select holder from x_scheduler_leader").fetchone()
        leading = [p for p in self._running() if holder is not None and f":{p.pid}:" in holder["holder"]]
        return leading[0] if leading and self.random.random() < 0.75 else self.random.choice(self._running())

    def _kill(self, process: Process) -> None:
        _said.warning("kill %s", process.name)
        process.kill()

    def _stop(self, process: Process) -> None:
        """Stop it where it stands until its lease has lapsed and another has taken the lead, or not quite."""
        _said.warning("stop %s", process.name)
        process.stop()
        time.sleep(self.random.uniform(0.2, 2.0) * LEASE_SECONDS)
        process.wake()

    def _cut_off(self, process: Process) -> None:
        _said.warning("cut off %s", process.name)
        self.site.connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s", [process.name]
        )

    def _cut_off_for_long(self, process: Process) -> None:
        """End its sessions as they come, for longer than its lease."""
        give_up_at = time.monotonic() + self.random.uniform(0.5, 1.5) * LEASE_SECONDS
        while time.monotonic() < give_up_at:
            self._cut_off(process)
            time.sleep(0.01)


@pytest.fixture(autouse=True)
def _nothing_declared() -> Iterator[None]:
    yield
    reset_jobs()
    reset_tasks()


def storm(site: Site, *, times: int, speed: float, more: tuple[str, ...] = ()) -> datetime:
    """Let the weather go over three schedulers, then let a sound one bring all up to date; answer until when."""
    driver = rs.PostgresDriver(site.dsn)
    driver.install()
    site.connection.execute(WITNESS)
    weather = Weather(site, speed=speed, more=list(more))
    driver.close()
    weather.rage(times=times)
    end = bring_up_to_date(site, weather)
    assert end > clockwork.SWITCH
    return end


def bring_up_to_date(site: Site, weather: Weather) -> datetime:
    """Fire what is left with one undisturbed scheduler, whose clock stands; answer when that is."""
    reset_jobs()
    reset_tasks()
    clockwork.note = rs.job("note", clockwork.note.body, tenant="none", input=str)
    driver, end = rs.PostgresDriver(site.dsn), weather.clock.now()
    rs.Scheduler(driver=driver, tasks=clockwork.declare(), clock=FakeClock(end)).tick()
    driver.close()
    return end


def occurrences(task: rs.TaskHandle, former: datetime, latter: datetime) -> list[datetime]:
    """Count the occurrences in `(former, latter]`."""
    found, at = [], next_occurrence(task.cron, task.tz, former)
    while at <= latter:
        found.append(at)
        at = next_occurrence(task.cron, task.tz, at)
    return found


def findings(site: Site, task: rs.TaskHandle, end: datetime) -> list[str]:
    """Go through every movement of a task's watermark: each fires what its policy says and passes over the rest."""
    moves = site.connection.execute(
        "select xid::text as xid, former, latter from moved where task = %s order by number", [task.name]
    ).fetchall()
    keys: dict[str, list[str]] = {}
    for row in site.connection.execute(
        "select xid::text as xid, key from fired where key like %s order by number", [f"{task.name}:%"]
    ).fetchall():
        keys.setdefault(row["xid"], []).append(row["key"])
    wrong = [f"fired apart from a move: {keys[xid]}" for xid in keys.keys() - {move["xid"] for move in moves}]
    wrong += [
        f"{key} fired {n} times" for key, n in Counter(key for of in keys.values() for key in of).items() if n > 1
    ]
    for earlier, later in pairwise(moves):
        if earlier["latter"] != later["former"]:
            wrong.append(f"the watermark jumped from {earlier['latter']} to {later['former']}")
    for move in moves:
        missed = occurrences(task, move["former"], move["latter"])
        expected = missed[:1] if task.catch_up == "run-once" else missed[-1:]
        wanted = [f"{task.name}:{occurrence_text(at)}:{n}" for at in expected for n in (0, 1)]
        if sorted(keys.get(move["xid"], [])) != wanted:
            wrong.append(f"{move['former']} to {move['latter']}: {keys.get(move['xid'])}, not {wanted}")
        if len(missed) > 1 and task.name == "all":
            wrong.append(f"{len(missed)} in one move of a task that makes up for all")
    kept = site.one("select watermark from x_scheduler_state where task = %s", task.name)
    left = occurrences(task, kept["watermark"], end)
    return [*wrong, *(f"{at} never came" for at in left)]


def all_findings(site: Site, end: datetime) -> list[str]:
    """Answer what is wrong with any task, by the declarations of the last scheduler."""
    from rowsweep.jobs.tasks.registry import registered_tasks

    return [f"{task.name}: {one}" for task in registered_tasks() for one in findings(site, task, end)]


def assert_accounted_for(site: Site, end: datetime, *, leaders: int) -> None:
    """Assert that each occurrence was fired once or dropped by its policy, and that leaders really changed."""
    assert all_findings(site, end) == []
    every = site.one("select count(distinct key) as keys, count(*) as jobs from fired where key like 'all:%%'")
    first = site.one("select min(former) as at from moved where task = 'all'")["at"]
    from rowsweep.jobs.tasks.registry import get_task

    assert every["keys"] == every["jobs"] == 2 * len(occurrences(get_task("all"), first, end))
    assert site.one("select count(*) as n from led")["n"] >= leaders
    logged = [event for process in site.processes for event in process.events()]
    assert {event["event"] for event in logged} <= {
        "jobs.scheduler.started", "jobs.scheduler.dispatched", "jobs.scheduler.leadership-lost",
        "jobs.scheduler.tick-failed",
    }  # fmt: skip
    assert not [event for event in logged if event["event"].endswith("tick-failed") and "task" in event]


def test_each_occurrence_fires_once_through_a_few_disturbances(site: Site) -> None:
    """S-247, S-270, N-097, N-099: the quick form, over about two days and a switch of London's clocks."""
    end = storm(site, times=10, speed=20_000)
    assert_accounted_for(site, end, leaders=3)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_each_occurrence_fires_once_through_many_disturbances(site: Site) -> None:
    """S-247, S-270, N-097, N-099: once exactly, or dropped in the move that its policy makes."""
    end = storm(site, times=150, speed=10_000)
    assert_accounted_for(site, end, leaders=25)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_same_disturbances_find_what_an_unfenced_watermark_does_twice(site: Site) -> None:
    """S-247: the control: a storm that finds nothing here would prove nothing there."""
    end = storm(site, times=60, speed=10_000, more=("--unfenced",))
    assert [found for found in all_findings(site, end) if "times" in found] != []


def test_a_scheduler_goes_on_by_itself_when_its_server_comes_back(
    private_server: EmbeddedServer, sites: Callable[[str], Site]
) -> None:
    """N-024, S-251: the rounds in between fail and are logged; what was missed is made up for."""
    site = sites(private_server.dsn)
    driver = rs.PostgresDriver(site.dsn)
    driver.install()
    driver.close()
    site.connection.execute(WITNESS)
    weather = Weather(site, speed=20_000)
    weather.start()
    (only,) = site.processes
    only.until_logged("jobs.scheduler.dispatched", task="all")
    site.disconnect()
    private_server.stop("immediate")
    only.until_logged("jobs.scheduler.tick-failed", code="X_DRIVER_UNAVAILABLE")
    private_server.restart()
    before = site.one("select count(*) as n from moved")["n"]
    until(lambda: site.one("select count(*) as n from moved")["n"] > before + 20, lambda: only.log)
    until(lambda: weather.clock.now() > clockwork.SWITCH + timedelta(hours=1), "the end of the night")
    assert only.code is None
    only.kill()
    end = bring_up_to_date(site, weather)
    assert all_findings(site, end) == []
