"""Several processes that launch the same sweep at once: one run, one holder at a time."""

from __future__ import annotations

import pytest

from tests.acceptance.harness import Process, Site

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


def launched_at_once(site: Site, name: str, names: list[str]) -> list[Process]:
    """Start processes that launch and work the sweep, and let them go at the same moment."""
    processes = [site.worker(process, launch=name) for process in names]
    for process in processes:
        process.until_logged("ready")
    for process in processes:
        process.tell("go")
    return processes


@pytest.mark.parametrize(
    ("name", "processes"),
    [
        pytest.param("by-set", ["a", "b", "c"]),
        pytest.param("by-sql", ["a", "b"], marks=pytest.mark.slow),
        pytest.param("by-frame", ["a", "b", "c"], marks=pytest.mark.slow),
    ],
)
def test_a_sweep_launched_at_once_from_several_processes_is_one_run(
    site: Site, name: str, processes: list[str]
) -> None:
    """N-060: one launches, the others attach; whoever claims it counts every row once."""
    site.fill(10_000, least=0.05)
    started = launched_at_once(site, name, processes)
    launched = [process.until_logged("launched") for process in started]
    assert [answer["attached"] for answer in launched].count(False) == 1
    assert {answer["run_id"] for answer in launched} == {str(site.ledger()["run_id"])}
    site.until_state("done")
    site.assert_exact()
    assert site.job()["claims"] == 1


def test_another_process_takes_over_when_the_holder_is_killed_and_its_lease_has_lapsed(site: Site) -> None:
    """N-060, N-061: not before that, and it goes on behind the last batch."""
    site.fill(10_000, least=0.1)
    first, second = launched_at_once(site, "by-set", ["a", "b"])
    site.until_swept(1_000)
    holder = site.until_held()
    other = second if holder is first else first
    renewed = "select max(visible_at) as until from x_jobs"
    lease = site.one(renewed)["until"]
    holder.kill()
    lease = max(lease, site.one(renewed)["until"])
    site.until(lambda: site.holder() is other)
    assert site.one("select started_at >= %s as lapsed from x_jobs", lease)["lapsed"]
    site.pace(0)
    site.until_state("done")
    site.assert_exact()
    assert site.job()["claims"] > 1
    assert other.events("sweeps.batch")[0]["index"] >= 2
