"""Purging workers killed and stopped at random moments, and then every row accounted for."""

from __future__ import annotations

import pytest

from tests.acceptance.harness import Site
from tests.acceptance.storm import Storm, reported

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

YOUNG = 1_000
LEAST_SECONDS, MOST_SECONDS = 0.005, 0.03
# A trigger notes each row that goes: in the transaction that it goes in, so what rolled back left no note.
AGED = """
create table aged (id bigint primary key, created_at timestamptz not null);
create index on aged (created_at);
create table gone (id bigint not null);
create function note() returns trigger language plpgsql as
$$ begin insert into gone values (old.id); return null; end $$;
create trigger note after delete on aged for each row execute function note();
create trigger slow after delete on aged for each statement execute function slow();
"""


def aged(site: Site, rows: int) -> None:
    """Make a table with so many rows to go and some to stay; each batch is held open for a moment."""
    site.fill(0, least=LEAST_SECONDS, most=MOST_SECONDS)
    site.rows = rows
    site.connection.execute(AGED)
    site.connection.execute(
        "insert into aged select i, now() - interval '100 days' - i * interval '1 s' from generate_series(1, %s) i",
        [rows],
    )
    site.connection.execute("insert into aged select -i, now() from generate_series(1, %s) i", [YOUNG])
    site.connection.execute("analyze aged")


def weather(site: Site, *, rows: int, kills: int, stops: int) -> Storm:
    """Launch a purge and let a storm go over it, then wait for its end."""
    aged(site, rows)
    site.launch("purging")
    storm = Storm(site, kills=kills, stops=stops, progress=site.swept)
    storm.rage()
    site.until_state("done", seconds=120)
    return storm


def assert_survived(site: Site, storm: Storm) -> None:
    """Assert that each old row went once, no young one did, and that every count says so."""
    gone = site.one("select count(*) as rows, count(distinct id) as ids, min(id) as first, max(id) as last from gone")
    assert gone == {"rows": site.rows, "ids": site.rows, "first": 1, "last": site.rows}
    assert site.one("select count(*) as rows, max(id) as last from aged") == {"rows": YOUNG, "last": -1}
    ledger = site.ledger()
    assert (ledger["status"], ledger["rows"], ledger["written"]) == ("done", site.rows, site.rows)
    result = site.one("select result from x_jobs")["result"]
    assert (result["removed"], result["blocked"], result["backlog"]) == ({"aged": site.rows}, {}, {})
    assert site.tries() - ledger["batches"] >= (storm.kills + storm.stops) // 3, "the storm tore batches"
    assert len(storm.losses) == storm.stops
    assert all(reported(loss) for loss in storm.losses)


def test_every_old_row_goes_once_through_a_few_kills_and_a_stopped_holder(site: Site) -> None:
    """D-8, N-060, S-217: the quick form of the storm; nothing is forgotten, and the counts are true."""
    storm = weather(site, rows=20_000, kills=5, stops=1)
    assert_survived(site, storm)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_old_row_goes_once_through_twenty_kills_and_five_stopped_holders(site: Site) -> None:
    """D-8, N-060, S-217."""
    storm = weather(site, rows=200_000, kills=20, stops=5)
    assert_survived(site, storm)
