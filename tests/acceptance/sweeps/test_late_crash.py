"""Workers killed between the last page and the end, and then every late row done once."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.acceptance.application import BATCH_ROWS
from tests.acceptance.harness import Process, Site

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


def waits(site: Site) -> bool:
    row = site.one("select coalesce(max(waiting_for), '') as why from x_backfills")
    return "open transaction" in str(row["why"])


def taken_over(site: Site, name: str, killed: Process) -> Process:
    """Kill a worker and let another take its run up."""
    killed.kill()
    other = site.worker(name)
    site.until_held(besides=killed)
    return other


@pytest.mark.parametrize(("sweep", "proved"), [("unmarked", True), ("by-set", False)])
def test_late_rows_are_done_once_through_kills_in_the_wait_and_in_the_second_look(
    site: Site, sweep: str, proved: bool
) -> None:
    """N-057, N-060: the writers are a durable step, and the second look's batches are as any.

    Where only a snapshot tells late rows, a kill in the wait costs it, and the next attempt takes another; keys that it
    told outlive one.
    """
    site.fill(12_000)
    late = site.rows // 2
    site.connection.execute("delete from counted where id <= %s", [late])
    with psycopg.connect(site.dsn) as writer:
        writer.execute("insert into counted (id) select generate_series(1, %s)", [late])
        site.launch(sweep)
        first = site.worker("first")
        site.until(lambda: waits(site))
        second = taken_over(site, "second", first)
        site.connection.execute("update x_backfills set waiting_for = null")
        site.until(lambda: waits(site))
        site.pace(0.05)
        writer.commit()
    site.until_swept(late + 2 * BATCH_ROWS)
    taken_over(site, "third", second)
    site.pace(0)
    site.until_state("done")
    site.assert_exact()
    result: Any = site.one("select result from x_jobs")["result"]
    assert result["late"] == {"rows": late, "writers": 0, "unsure": 0, "proved": proved}
    if proved:
        assert site.one("select count(*) as n from x_job_steps where name in ('sweep:writers', 'sweep:late')")["n"] == 2
