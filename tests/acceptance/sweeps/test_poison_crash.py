"""Workers killed and stopped while they look for the rows that fail by themselves, and then every row accounted for."""

from __future__ import annotations

import pytest

from tests.acceptance.application import BATCH_ROWS, POISONED
from tests.acceptance.harness import Site
from tests.acceptance.storm import Storm, reported

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


def weather(site: Site, name: str, *, rows: int, kills: int, stops: int) -> Storm:
    """Launch a sweep over poisoned rows and let a storm go over it, then wait for its end."""
    site.fill(rows, least=0.001, most=0.01)
    site.launch(name)
    storm = Storm(site, kills=kills, stops=stops, progress=site.swept)
    storm.rage()
    site.until_state("done", seconds=180)
    return storm


def listed(site: Site) -> list[int]:
    """Answer the keys that the run set aside."""
    rejected = site.one("select rejected, rejected_rows from x_backfills")
    assert rejected["rejected_rows"] == len(rejected["rejected"])
    assert all(entry["error"] == "Poisoned: one of them is poisoned" for entry in rejected["rejected"])
    return [int(entry["key"]["id"]) for entry in rejected["rejected"]]


def poisoned(site: Site) -> list[int]:
    return list(range(POISONED, site.rows + 1, POISONED))


@pytest.mark.timeout(400)
def test_every_row_is_done_once_or_listed_once_through_kills_in_the_middle_of_a_search(site: Site) -> None:
    """N-084, N-060: half of the batches are searched, each under twenty savepoints; nothing of one stays half done."""
    storm = weather(site, "aside", rows=60_000, kills=12, stops=3)
    bad = poisoned(site)
    assert listed(site) == bad
    assert site.counts() == {0: len(bad), 1: site.rows - len(bad)}
    assert [row["id"] for row in site.connection.execute("select id from counted where n = 0 order by id")] == bad
    ledger = site.ledger()
    assert (ledger["status"], ledger["rows"]) == ("done", site.rows - len(bad))
    assert site.one("select result from x_jobs")["result"]["rejected"] == len(bad)
    assert all(reported(loss) for loss in storm.losses)


@pytest.mark.timeout(400)
def test_outside_a_transaction_every_row_is_done_or_listed_and_only_a_part_is_repeated(site: Site) -> None:
    """N-084, N-066: at least once; what a crash repeats is one part, over its bounds and under its key."""
    storm = weather(site, "aside-outside", rows=30_000, kills=8, stops=0)
    bad = poisoned(site)
    assert listed(site) == bad
    assert [row["id"] for row in site.connection.execute("select id from counted where n = 0 order by id")] == bad
    calls = site.connection.execute(
        "select key, count(*) as n, count(distinct (first, last)) as bounds from calls group by 1"
    )
    again = [call for call in calls if call["n"] > 1]
    assert all(call["bounds"] == 1 for call in again)
    assert len(again) <= storm.kills
    repeated = site.one("select coalesce(sum(n - 1), 0) as rows from counted where n > 1")["rows"]
    assert repeated <= storm.kills * BATCH_ROWS
    assert site.one("select sum(rows) as rows from calls")["rows"] == site.rows - len(bad) + repeated
