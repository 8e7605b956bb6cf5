"""The connection breaks in the middle of a batch's commit: the pass learns from the database whether it is in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.harness import FORMS, Site, until
from tests.acceptance.wire import Cut, Wire

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

# The commit of a batch with such a row takes its time, and its session holds the job row until it is decided.
SLOW_COMMIT = """
create table decision (seconds double precision not null);
insert into decision values (0);
create function decide() returns trigger language plpgsql as $$
begin
  perform pg_sleep(seconds) from decision;
  return null;
end $$;
create constraint trigger decide after update on counted deferrable initially deferred
  for each row when (new.id % 500 = 0) execute function decide();
"""


@pytest.fixture
def wire(dsn: str) -> Iterator[Wire]:
    """A wire to the schema under test."""
    made = Wire(dsn)
    yield made
    made.close()


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("where", ["before", "behind"])
def test_a_batch_whose_commit_lost_its_connection_is_done_once(site: Site, wire: Wire, name: str, where: Cut) -> None:
    """N-062: tried again where the commit never arrived, and not where only its answer was lost.

    Behind the commit of a batch without a handler the next one has begun, which is what is tried again then.
    """
    site.fill(10_000, least=0.01)
    site.launch(name)
    worker = site.worker("only", visibility="30s", through=wire.dsn)
    for rows in (500, 3_000, 5_000):
        site.until_swept(rows)
        wire.cut(where)
        until(lambda: not wire.is_cutting, lambda: worker.log)
    site.until_state("done")
    site.assert_exact()
    assert wire.broken == 3
    assert site.tries() - site.ledger()["batches"] == (3 if where == "before" or name == "by-set" else 0)
    assert (site.job()["claims"], site.job()["attempt"]) == (1, 1)
    assert len(worker.events("sweeps.batch.shrunk")) == 3


def test_a_commit_that_is_not_decided_yet_is_waited_for(site: Site, wire: Wire) -> None:
    """N-062: the former session holds the job row, and commits seconds after the pass has lost it."""
    site.fill(5_000)
    site.connection.execute(SLOW_COMMIT)
    site.pace(0.2)
    site.launch("by-sql")
    worker = site.worker("only", visibility="30s", through=wire.dsn)
    site.until_swept(1_000)
    site.connection.execute("update decision set seconds = 3")
    wire.cut("during")
    until(lambda: not wire.is_cutting, lambda: worker.log)
    site.connection.execute("update decision set seconds = 0")
    site.pace(0)
    site.until_state("done")
    site.assert_exact()
    assert site.tries() == site.ledger()["batches"]
    assert (site.job()["claims"], site.job()["attempt"]) == (1, 1)
