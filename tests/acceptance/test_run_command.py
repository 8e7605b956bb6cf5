"""`rowsweep run`: killed and run again, interrupted, told to end, run twice at once."""

from __future__ import annotations

import json
import logging
import random
import secrets
import signal
import time
from typing import Any

import pytest

from tests.acceptance.harness import Process, Site, until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

ROWS = 10_000
TERM, INT = signal.SIGTERM, signal.SIGINT


def run_sweep(site: Site, process: str, sweep: str) -> Process:
    """Run a sweep by the real command; its JSON document is its last word."""
    return site.command(process, "run", sweep, "--json", "--visibility", "1s")


def last_word(process: Process) -> Any:
    """Answer the document that the command left."""
    return json.loads(process.out)


def killed_again_and_again(site: Site, sweep: str, *, kills: int) -> None:
    """Run the sweep, kill it at a random moment, run it again, and so on; then let it end."""
    seed = secrets.randbits(32)
    logging.getLogger("storm").warning("seed %s", seed)
    chance = random.Random(seed)
    share = 0.8 * site.rows / kills
    for number in range(kills):
        process = run_sweep(site, f"run{number}", sweep)
        site.until_swept(int(site.swept() + chance.uniform(0.1, 1.0) * share))
        time.sleep(chance.uniform(0.0, 0.05))
        process.kill()
    process = run_sweep(site, "last", sweep)
    assert process.wait(60) == 0, process.log
    document = last_word(process)
    assert (document["status"], document["rows"]) == ("done", site.rows)
    site.assert_exact()


@pytest.mark.parametrize("sweep", ["by-set"])
def test_a_sweep_killed_and_run_again_ends_with_every_row_written_once(site: Site, sweep: str) -> None:
    """N-060: the command finds its own run again, waits for the lease of the one that died, and goes on."""
    site.fill(ROWS, least=0.01, most=0.05)
    killed_again_and_again(site, sweep, kills=2)
    assert site.job()["claims"] > 2


@pytest.mark.slow
@pytest.mark.parametrize("sweep", ["by-set", "by-sql", "by-frame"])
def test_a_large_sweep_killed_eight_times_ends_with_every_row_written_once(site: Site, sweep: str) -> None:
    """N-060: as above, further."""
    site.fill(100_000, least=0.01, most=0.05)
    killed_again_and_again(site, sweep, kills=8)
    assert site.job()["claims"] > 8


def test_ctrl_c_pauses_behind_the_batch_and_a_second_run_goes_on(site: Site) -> None:
    """N-042, N-060: leaves with 130, nothing is torn, nothing is repeated: a batch that was begun ahead is closed."""
    site.fill(ROWS, least=0.2)
    first = run_sweep(site, "first", "by-set")
    site.until_swept(1_000)
    first.send(INT)
    assert first.wait(60) == 130, first.log
    ledger = site.ledger()
    assert ledger["status"] == "paused"
    assert site.tries() == ledger["batches"] < ROWS // 500
    site.pace(0)
    second = run_sweep(site, "second", "by-set")
    assert second.wait(60) == 0, second.log
    site.assert_exact()


def left_at_once_in_a_batch(site: Site) -> None:
    """Run a sweep whose handler does not come back, ask it to pause, and then leave it at once."""
    site.fill(ROWS)
    site.connection.execute("update deafness set seconds = 60")
    first = run_sweep(site, "first", "deaf")
    site.until(lambda: site.tries() >= 1)
    first.send(INT)
    until(lambda: "pausing" in first.log, lambda: first.log)
    told_at = time.monotonic()
    first.send(INT)
    assert first.wait(60) == 130
    assert time.monotonic() - told_at < 15
    until(lambda: site.counts() == {0: ROWS}, site.shown)
    site.connection.execute("update deafness set seconds = 0")


def test_a_second_ctrl_c_stops_at_once_and_the_batch_rolls_back(site: Site) -> None:
    """N-042: for a handler that does not come back; the run is still asked to pause, until it is resumed."""
    left_at_once_in_a_batch(site)
    resumed = site.command("resumed", "sweeps", "resume", "deaf")
    assert resumed.wait(60) == 0, resumed.log
    second = run_sweep(site, "second", "deaf")
    assert second.wait(60) == 0, second.log
    site.assert_exact()


def test_a_run_left_at_once_while_it_was_to_pause_goes_on_when_it_is_run_again(site: Site) -> None:
    """N-042: what `rowsweep run` promises of a paused or abandoned run."""
    left_at_once_in_a_batch(site)
    second = run_sweep(site, "second", "deaf")
    assert second.wait(60) == 0, second.log
    site.assert_exact()


def test_a_run_told_to_end_is_left_to_the_next_worker(site: Site) -> None:
    """N-042, S-298: leaves with 143 behind its batch; a worker of the fleet goes on at once."""
    site.fill(ROWS, least=0.2)
    first = run_sweep(site, "first", "by-sql")
    site.until_swept(1_000)
    first.send(TERM)
    assert first.wait(60) == 143, first.log
    job, ledger = site.job(), site.ledger()
    assert (job["state"], job["attempt"], job["claims"]) == ("ready", 0, 1)
    assert (ledger["status"], ledger["batches"]) == ("running", site.tries())
    site.pace(0)
    site.command("next", "worker", "--json", "--visibility", "2s")
    site.until_state("done")
    site.assert_exact()


def test_a_sweep_run_twice_at_once_is_worked_once_and_watched_twice(site: Site) -> None:
    """N-060: the second finds it live, and both leave when it is done."""
    site.fill(ROWS, least=2)
    first = run_sweep(site, "first", "by-set")
    site.until_swept(500)
    second = run_sweep(site, "second", "by-set")
    until(lambda: "by-set: running" in second.log, lambda: second.log)
    site.pace(0)
    assert (first.wait(60), second.wait(60)) == (0, 0)
    assert last_word(first)["run_id"] == last_word(second)["run_id"]
    site.assert_exact()
    assert site.job()["claims"] == 1
