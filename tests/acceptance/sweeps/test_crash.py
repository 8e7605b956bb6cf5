"""Workers killed and stopped at random moments, and then every row counted."""

from __future__ import annotations

import pytest

from tests.acceptance.harness import Site
from tests.acceptance.storm import Storm, reported

pytestmark = pytest.mark.acceptance

FORMS = ["by-set", "by-sql", "by-frame"]
LEAST_SECONDS, MOST_SECONDS = 0.005, 0.03
UNEXPECTED = [
    "jobs.attempt.failed", "jobs.claim.exhausted", "jobs.renewal.raised", "jobs.settle.unowned",
    "jobs.worker.tick-failed", "signals.callback.failed", "sweeps.code-changed",
]  # fmt: skip


def weather(site: Site, name: str, *, rows: int, kills: int, stops: int) -> Storm:
    """Launch a sweep and let a storm go over it, then wait for its end."""
    site.fill(rows, least=LEAST_SECONDS, most=MOST_SECONDS)
    site.launch(name)
    storm = Storm(site, kills=kills, stops=stops, progress=site.swept)
    storm.rage()
    site.until_state("done", seconds=120)
    return storm


def assert_survived(site: Site, storm: Storm) -> None:
    """Assert what holds for an atomic sweep, and that the storm really tore batches."""
    site.assert_exact()
    assert site.tries() - site.ledger()["batches"] >= max((storm.kills + storm.stops) // 6, 1)
    assert len(storm.losses) == storm.stops
    assert all(reported(loss) for loss in storm.losses)
    logged = [event for process in site.processes for event in process.events()]
    assert [event for event in logged if event["event"] in UNEXPECTED] == []


@pytest.mark.parametrize("name", FORMS[:1])
def test_every_row_is_written_once_through_a_few_kills_and_a_stopped_holder(site: Site, name: str) -> None:
    """N-060, N-061, N-063, N-120, S-323: the quick form of the storm."""
    storm = weather(site, name, rows=20_000, kills=5, stops=1)
    assert_survived(site, storm)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", FORMS)
def test_every_row_is_written_once_through_twenty_kills_and_five_stopped_holders(site: Site, name: str) -> None:
    """N-060, N-061, N-063, N-120, S-323: the ledger counts the table's rows, each woken holder reports its loss."""
    storm = weather(site, name, rows=200_000, kills=20, stops=5)
    assert_survived(site, storm)


def hand_swept(site: Site) -> int:
    """Answer how many rows the checkpoint of the hand-written job counts."""
    row = site.one("select coalesce(max((output ->> 'last')::bigint), 0) as rows from x_job_steps")
    return int(row["rows"])


def weather_by_hand(site: Site, *, rows: int, kills: int, stops: int) -> dict[int, int]:
    """Let the same storm go over a sweep whose checkpoint commits apart from its writes; answer the counts."""
    site.fill(rows, least=LEAST_SECONDS, most=MOST_SECONDS)
    site.launch("apart")
    Storm(site, kills=kills, stops=stops, progress=lambda: hand_swept(site)).rage()
    site.until_state("done", seconds=120)
    return site.counts()


@pytest.mark.slow
def test_the_same_few_kills_find_repeats_where_the_checkpoint_commits_apart(site: Site) -> None:
    """N-060: the control: a storm that finds nothing here would prove nothing there."""
    counts = weather_by_hand(site, rows=20_000, kills=5, stops=1)
    assert max(counts) > 1
    assert 0 not in counts


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_same_storm_finds_repeats_where_the_checkpoint_commits_apart(site: Site) -> None:
    """N-060: the control, under the whole storm."""
    counts = weather_by_hand(site, rows=200_000, kills=20, stops=5)
    assert max(counts) > 1
    assert 0 not in counts


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_handler_outside_the_transaction_repeats_batches_under_their_keys_and_skips_none(site: Site) -> None:
    """S-187, N-066, N-067: at least once; a repeated batch has the bounds and the key that it had."""
    weather(site, "outside", rows=50_000, kills=10, stops=2)
    calls = site.one(
        "select count(distinct key) as keys, count(distinct (key, first, last)) as pages, count(*) as calls,"
        " sum(rows) as rows from calls"
    )
    ledger, counts = site.ledger(), site.counts()
    assert (ledger["status"], ledger["rows"]) == ("done", site.rows)
    assert 0 not in counts
    assert max(counts) > 1
    assert calls["keys"] == calls["pages"] == ledger["batches"]
    assert calls["calls"] > calls["keys"]
    assert sum(times * rows for times, rows in counts.items()) == calls["rows"]
