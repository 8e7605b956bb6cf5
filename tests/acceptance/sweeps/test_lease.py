"""A lease lost while its holder lives: the statement is cancelled, the batch rolls back, the next holder goes on."""

from __future__ import annotations

import time

import pytest

from tests.acceptance.harness import FORMS, Process, Site

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

LAPSE = "update x_jobs set visible_at = now(); update x_job_leases set expires_at = now()"
STEAL = "update x_jobs set claims = claims + 1, claimed_by = 'thief', visible_at = now() + interval '1 second'"


def sleeping(site: Site, process: Process) -> bool:
    """Say whether a statement of the process is under way in the server."""
    asked = "select count(*) as n from pg_stat_activity where application_name = %s and wait_event = 'PgSleep'"
    return bool(site.one(asked, process.name)["n"])


def test_the_statement_of_a_woken_holder_is_cancelled_and_its_batch_rolls_back(site: Site) -> None:
    """S-323, N-060, N-120: stopped in the middle of a statement that would take a minute more."""
    site.fill(5_000, least=40)
    site.launch("waiting-on-the-server")
    first = site.worker("first", visibility="1s")
    site.until(lambda: sleeping(site, first))
    first.stop()
    second = site.worker("second", visibility="1s")
    site.until(lambda: site.holder() is second)
    assert sleeping(site, first)
    woken_at = time.monotonic()
    first.wake()
    first.until_logged("jobs.lease.lost", claim=1, code="X_JOB_LEASE_LOST")
    first.until_logged("jobs.run.finished", outcome="interrupted")
    site.until(lambda: not sleeping(site, first))
    assert time.monotonic() - woken_at < 15
    assert site.counts() == {0: 5_000}
    site.pace(0)
    first.kill()
    second.kill()
    site.worker("third", visibility="1s")
    site.until_state("done")
    site.assert_exact()
    assert site.job()["attempt"] == 1


@pytest.mark.parametrize("name", FORMS)
def test_a_batch_that_finds_its_claim_gone_rolls_back_and_is_no_failure(site: Site, name: str) -> None:
    """N-060, N-120: its own last statement notices, long before a renewal would; its settle is not sent."""
    site.fill(5_000, least=0.2)
    site.launch(name)
    worker = site.worker("only", visibility="60s")
    site.until_swept(1)
    began = site.tries()
    site.until(lambda: site.tries() > began)
    site.connection.execute(STEAL)
    worker.until_logged("jobs.run.finished", outcome="interrupted")
    assert len(worker.events("jobs.lease.lost", claim=1, code="X_JOB_LEASE_LOST")) == 1
    swept = site.swept()
    assert site.counts() == {0: 5_000 - swept, 1: swept}
    assert worker.events("jobs.attempt.failed") == worker.events("jobs.settle.unowned") == []
    site.pace(0)
    site.until_state("done")
    site.assert_exact()


def taken_over_unnoticed(site: Site, first: Process) -> Process:
    """Stop the holder, let its lease lapse long before it would renew it, and start the one that takes over."""
    first.stop()
    site.connection.execute(LAPSE)
    second = site.worker("second", visibility="60s")
    site.until(lambda: site.holder() is second)
    return second


def assert_refused_and_exact(site: Site, first: Process) -> None:
    """Assert that the woken holder committed nothing, and that the other one ends the run."""
    first.until_logged("jobs.lease.lost", claim=1, code="X_JOB_LEASE_LOST")
    first.until_logged("jobs.run.finished", outcome="interrupted")
    assert first.events("jobs.attempt.failed") == []
    site.until_state("done")
    site.assert_exact()


def test_a_holder_stopped_between_batches_is_refused_its_next_one_by_the_fence_alone(site: Site) -> None:
    """N-060: it believes in its lease, and sweeps the page again that another has swept meanwhile."""
    site.fill(4_000)
    site.launch("paced")
    first = site.worker("first", visibility="60s")
    site.until_swept(500)
    taken_over_unnoticed(site, first)
    site.until_swept(site.swept() + 1)
    first.wake()
    assert_refused_and_exact(site, first)


def test_a_holder_stopped_inside_a_batch_is_refused_its_commit_by_the_fence_alone(site: Site) -> None:
    """N-060, N-069: the other waits for the page's rows meanwhile, and gets them when the batch rolls back."""
    site.fill(4_000)
    site.connection.execute("update deafness set seconds = 1")
    site.launch("deaf")
    first = site.worker("first", visibility="60s")
    site.until(lambda: site.tries() >= 1)
    second = taken_over_unnoticed(site, first)
    site.connection.execute("update deafness set seconds = 0")
    second.until_logged("sweeps.batch.shrunk", sqlstate="55P03")
    assert site.counts() == {0: 4_000}
    first.wake()
    assert_refused_and_exact(site, first)
