"""A workflow of thirty steps, killed where it stands and taken up again: every effect is there once."""

from __future__ import annotations

import logging
import os
import random
import secrets
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from rowsweep.jobs.registry import reset_jobs
from rowsweep.queue.postgres.driver import PostgresDriver
from tests.acceptance.harness import Process, Site

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

SCRIPT = Path(__file__).with_name("workflow.py")
UNEXPECTED = [
    "jobs.attempt.failed", "jobs.claim.exhausted", "jobs.renewal.raised", "jobs.settle.unowned",
    "jobs.worker.tick-failed", "jobs.lease.lost",
]  # fmt: skip
_said = logging.getLogger("workflow")


class Flow:
    """One workflow on the queue, whoever works it, and somebody who publishes what it waits for."""

    def __init__(self, site: Site) -> None:
        from rowsweep.app.connecting import connect
        from tests.acceptance.jobs.workflow import workflow

        self.site = site
        self.driver = PostgresDriver(site.dsn)
        self.driver.install()
        site.connection.execute("create table effects (step integer not null)")
        app = connect(site.dsn, work=False)
        try:
            workflow.enqueue()
        finally:
            app.close()
            reset_jobs()
        self._bus = self.driver.event_bus()
        self._published: set[str] = set()
        self._names = count()

    def start(self, *arguments: str) -> Process:
        """Start a worker, which may be told where to die."""
        name = f"w{next(self._names)}"
        return self.site.start(name, [str(SCRIPT), name, *arguments])

    def publish(self) -> None:
        """Publish what the run waits for and has not been published, each event once."""
        rows = self.site.connection.execute("select correlation_key as key from x_job_steps where status = 'waiting'")
        for key in {row["key"] for row in rows if row["key"] is not None} - self._published:
            self._published.add(key)
            self._bus.publish("go", {"key": key}, key=key)

    def until_dead(self, process: Process) -> None:
        """Publish until the process has died, and let its lease have lapsed, which only takes time otherwise."""

        def is_dead() -> bool:
            self.publish()
            assert self.site.job()["state"] != "done", "it was not killed"
            return process.code is not None

        self.site.until(is_dead) if process.code is None else None
        self.lapse()

    def lapse(self) -> None:
        """Let the lease of a process that is gone have lapsed."""
        self.site.connection.execute("update x_jobs set visible_at = now() - interval '1 s' where state = 'running'")

    def finish(self) -> None:
        """Let it be worked to its end."""
        self.start()

        def is_done() -> bool:
            self.publish()
            return bool(self.site.job()["state"] == "done")

        self.site.until(is_done)

    def assert_exact(self) -> None:
        """Assert that every effect and every step is there once, and that nothing failed on the way."""
        from tests.acceptance.jobs.workflow import SLEEPS, STEPS, WAITS

        with_effects = [number for number in range(STEPS) if number % 5 not in (SLEEPS, WAITS)]
        rows = self.site.connection.execute("select step from effects order by step").fetchall()
        assert [row["step"] for row in rows] == with_effects
        steps = self.site.connection.execute("select name, status, attempts from x_job_steps").fetchall()
        assert {(row["status"], row["attempts"]) for row in steps} == {("done", 0)}
        assert {row["name"] for row in steps} == {f"step {number}" for number in range(STEPS)}
        heard = self.site.one("select result, last_error from x_jobs")
        assert heard == {"result": [{"key": str(at)} for at in range(WAITS, STEPS, 5)], "last_error": None}
        logged = [event for process in self.site.processes for event in process.events()]
        assert [event for event in logged if event["event"] in UNEXPECTED] == []


@pytest.fixture
def flow(site: Site) -> Iterator[Flow]:
    made = Flow(site)
    yield made
    made.driver.close()


def die_at(flow: Flow, boundaries: list[str]) -> None:
    """Have a process die at each of the boundaries in turn, then work it to its end."""
    for boundary in boundaries:
        flow.until_dead(flow.start("--die-at", boundary))
    flow.finish()
    flow.assert_exact()
    assert flow.site.job()["claims"] > len(boundaries)


def die_at_random(flow: Flow, kills: int) -> None:
    """Kill whoever works it at random moments, then work it to its end."""
    given = os.environ.get("ROWSWEEP_STORM")
    seed = secrets.randbits(32) if given is None else int(given)
    _said.warning("ROWSWEEP_STORM=%s", seed)
    chance = random.Random(seed)
    for _ in range(kills):
        process = flow.start("--pause", "0.005")

        def is_held(process: Process = process) -> bool:
            flow.publish()
            return flow.site.holder() is process

        flow.site.until(is_held)
        give_up_at = time.monotonic() + chance.uniform(0.0, 0.15)
        while time.monotonic() < give_up_at:
            flow.publish()
        assert flow.site.job()["state"] != "done", "too few steps for so many kills"
        process.kill()
        flow.lapse()
    flow.finish()
    flow.assert_exact()


def test_every_effect_is_there_once_through_deaths_at_some_boundaries(flow: Flow) -> None:
    """S-148, S-149, S-166, N-046, N-047: before, within and behind steps of every kind; the quick form."""
    from tests.acceptance.jobs.workflow import BOUNDARIES

    die_at(flow, BOUNDARIES[4::9])


def test_every_effect_is_there_once_through_a_few_random_deaths(flow: Flow) -> None:
    """S-148, S-149, S-166, N-046, N-047: the quick form."""
    die_at_random(flow, 5)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_effect_is_there_once_through_a_death_at_every_boundary(flow: Flow) -> None:
    """S-148, S-149, S-166, N-046, N-047."""
    from tests.acceptance.jobs.workflow import BOUNDARIES

    die_at(flow, BOUNDARIES)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("round_", range(3))
def test_every_effect_is_there_once_through_many_random_deaths(flow: Flow, round_: int) -> None:
    """S-148, S-149, S-166, N-046, N-047."""
    die_at_random(flow, 12)
