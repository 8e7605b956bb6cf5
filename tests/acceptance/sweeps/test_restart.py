"""The server goes away in the middle of a sweep and comes back: the sweep goes on by itself in the same process."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from rowsweep.embedded import EmbeddedServer
from rowsweep.embedded.cluster import ShutdownMode
from tests.acceptance.harness import Site

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

OUTAGE_SECONDS = 5.0


def interrupted_by(site: Site, server: EmbeddedServer, mode: ShutdownMode, *, visibility: str, outage: float) -> None:
    """Sweep, let the server be gone for a while in the middle of it, and wait for the end."""
    site.fill(20_000, least=0.01, most=0.05)
    site.launch("by-sql")
    site.worker("only", visibility=visibility)
    site.until_swept(4_000)
    site.disconnect()
    server.stop(mode)
    time.sleep(outage)
    server.restart()
    site.until_state("done", seconds=90)
    site.assert_exact()


@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_a_sweep_outlives_a_restart_within_its_lease(
    private_server: EmbeddedServer, sites: Callable[[str], Site], mode: ShutdownMode
) -> None:
    """N-062, N-069: the batch in flight is tried again on a new connection, in the same attempt."""
    site = sites(private_server.dsn)
    interrupted_by(site, private_server, mode, visibility="30s", outage=0.5)
    assert (site.job()["claims"], site.job()["attempt"]) == (1, 1)
    (only,) = site.processes
    assert only.code is None
    assert only.events("sweeps.batch.shrunk")
    assert only.events("jobs.attempt.failed") == only.events("jobs.lease.lost") == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["immediate", "fast"])
@pytest.mark.parametrize("visibility", ["30s", "2s"])
def test_a_sweep_outlives_an_outage_longer_than_its_lease_or_not(
    private_server: EmbeddedServer, sites: Callable[[str], Site], mode: ShutdownMode, visibility: str
) -> None:
    """N-062, N-069, S-323: with a lease shorter than the outage the run is lost, and claimed again by the process."""
    site = sites(private_server.dsn)
    site.connection.execute("alter system set synchronous_commit = on")
    site.connection.execute("select pg_reload_conf()")
    interrupted_by(site, private_server, mode, visibility=visibility, outage=OUTAGE_SECONDS)
    (only,) = site.processes
    assert only.code is None
    if visibility == "2s":
        assert only.events("jobs.lease.lost", code="X_JOB_LEASE_LOST")
        assert site.job()["claims"] > 1
    else:
        assert site.job()["claims"] == 1


@pytest.mark.slow
def test_commits_that_a_crash_of_the_server_undid_are_done_again(
    private_server: EmbeddedServer, sites: Callable[[str], Site]
) -> None:
    """N-062: with `synchronous_commit = off` the checkpoint and the writes go back together, behind the pass's back."""
    site = sites(private_server.dsn)
    site.connection.execute("alter system set synchronous_commit = off")
    site.connection.execute("alter system set wal_writer_delay = '10s'")
    site.connection.execute("select pg_reload_conf()")
    site.fill(20_000, least=0.005)
    site.launch("by-sql")
    only = site.worker("only", visibility="30s")
    site.connection.execute("checkpoint")
    site.until_swept(4_000)
    site.disconnect()
    private_server.restart("immediate")
    site.until_state("done", seconds=90)
    site.assert_exact()
    done = [event["index"] for event in only.events("sweeps.batch")]
    assert len(done) > len(set(done)), "batches whose commits were undone are done again"
