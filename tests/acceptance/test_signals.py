"""`rowsweep worker` told to end: what finishes, what is cut off, and who goes on."""

from __future__ import annotations

import signal
import time

import pytest

from tests.acceptance.harness import Process, Site, until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

ROWS = 5_000
TERM, INT = signal.SIGTERM, signal.SIGINT
BUDGET_SECONDS = 4.0
# What a loaded machine may need on top for the interpreter to leave.
LEAVING_SECONDS = 10.0


def fleet_worker(site: Site, name: str, *, drain: str = "20s") -> Process:
    """Start a worker by the real command."""
    return site.command(name, "worker", "--json", "--visibility", "2s", "--drain", drain)


def until_in_a_batch(site: Site, *, tries: int = 1) -> None:
    """Wait for the statement of a batch to be under way in the server."""
    site.until(lambda: site.tries() >= tries)


def assert_handed_back(site: Site, worker: Process) -> None:
    """Assert that the run is nobody's again, at once and as if it had never been claimed."""
    job = site.job()
    assert (job["state"], job["claimed_by"], job["attempt"], job["claims"]) == ("ready", None, 0, 1)
    assert worker.events("jobs.run.finished")[-1]["outcome"] == "interrupted"
    assert worker.events("jobs.worker.stopped")[-1]["interrupted"] == 1


def assert_finished_by_another(site: Site) -> None:
    """Assert that the next worker ends the run with every row written once."""
    site.pace(0)
    site.connection.execute("update deafness set seconds = 0")
    fleet_worker(site, "next")
    site.until_state("done")
    site.assert_exact()
    assert site.job()["claims"] > 1


@pytest.mark.parametrize(("name", "told"), [("by-set", TERM), ("by-sql", INT), ("by-frame", TERM)])
def test_a_worker_told_to_end_finishes_its_batch_and_hands_the_run_back(
    site: Site, name: str, told: signal.Signals
) -> None:
    """N-042, S-298, S-299, S-300: the batch in flight commits, the attempt is not counted, another goes on at once."""
    site.fill(ROWS, least=0.3)
    site.launch(name)
    worker = fleet_worker(site, "first")
    until_in_a_batch(site, tries=2)
    told_at = time.monotonic()
    worker.send(told)
    assert worker.wait(60) == 0
    assert time.monotonic() - told_at < LEAVING_SECONDS
    ledger = site.ledger()
    assert site.tries() == ledger["batches"]
    assert 2 * 500 <= ledger["rows"] < ROWS
    assert_handed_back(site, worker)
    assert_finished_by_another(site)


@pytest.mark.parametrize("told", [TERM, INT])
def test_a_statement_longer_than_the_budget_is_cut_off_and_its_batch_rolls_back(
    site: Site, told: signal.Signals
) -> None:
    """S-298, S-301: cancelled in the server at the margin, handed back uncounted, and left in time."""
    site.fill(ROWS, least=50)
    site.launch("waiting-on-the-server")
    worker = fleet_worker(site, "first", drain=f"{BUDGET_SECONDS:g}s")
    until_in_a_batch(site)
    told_at = time.monotonic()
    worker.send(told)
    assert worker.wait(60) == 0
    assert time.monotonic() - told_at < BUDGET_SECONDS + LEAVING_SECONDS
    asked = "select count(*) as n from pg_stat_activity where application_name = 'first' and state = 'active'"
    until(lambda: site.one(asked)["n"] == 0, site.shown)
    assert site.counts() == {0: ROWS}
    assert_handed_back(site, worker)
    assert_finished_by_another(site)


def test_a_handler_that_listens_to_nobody_is_left_behind_and_its_run_handed_back(site: Site) -> None:
    """S-298, S-301, S-304: nothing can end its thread, so its claim goes back without it."""
    site.fill(ROWS)
    site.connection.execute("update deafness set seconds = 60")
    site.launch("deaf")
    worker = fleet_worker(site, "first", drain=f"{BUDGET_SECONDS:g}s")
    until_in_a_batch(site)
    told_at = time.monotonic()
    worker.send(TERM)
    assert worker.wait(60) == 0
    assert time.monotonic() - told_at < BUDGET_SECONDS + LEAVING_SECONDS
    assert site.counts() == {0: ROWS}
    assert_handed_back(site, worker)
    assert_finished_by_another(site)


def test_a_second_ctrl_c_leaves_at_once(site: Site) -> None:
    """N-042: nothing is waited for; the batch rolls back, and the run goes on when the lease has lapsed."""
    site.fill(ROWS)
    site.connection.execute("update deafness set seconds = 60")
    site.launch("deaf")
    worker = fleet_worker(site, "first", drain="60s")
    until_in_a_batch(site)
    worker.send(INT)
    worker.until_logged("jobs.worker.draining", reason="SIGINT")
    told_at = time.monotonic()
    worker.send(INT)
    assert worker.wait(60) == 130
    assert time.monotonic() - told_at < LEAVING_SECONDS
    assert site.job()["state"] == "running"
    assert_finished_by_another(site)


@pytest.mark.parametrize("told", [TERM, INT])
def test_an_idle_worker_leaves_at_once(site: Site, told: signal.Signals) -> None:
    """S-305: nothing is in flight, so nothing is waited for."""
    site.fill(1)
    worker = fleet_worker(site, "first")
    worker.until_logged("jobs.worker.started")
    told_at = time.monotonic()
    worker.send(told)
    assert worker.wait(60) == 0
    assert time.monotonic() - told_at < LEAVING_SECONDS
    until(lambda: site.one("select count(*) as n from x_job_workers")["n"] == 0, site.shown)
