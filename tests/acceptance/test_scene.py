"""What a failure says first: whose the job is, and which session holds its row."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import make_conninfo

from tests.acceptance.harness import Site


def test_a_failure_tells_in_one_line_who_holds_the_job_s_row(site: Site) -> None:
    """S-323: the lease that is over and the transaction in the way, before any log."""
    site.fill(1)
    site.launch("by-set")
    site.connection.execute(
        "update x_jobs set state = 'running', claimed_by = 'w1:x', claims = 3, attempt = 1,"
        " visible_at = now() - interval '2 minutes'"
    )
    assert site.shown().splitlines()[0].endswith("nobody is in a transaction")
    with psycopg.connect(make_conninfo(site.dsn, application_name="w1")) as frozen:
        frozen.execute("select from x_jobs for no key update")
        first = site.shown().splitlines()[0]
    assert first.startswith("by-set running by w1:x (claim 3), lease over for 12")
    assert "HOLDS THE ROW: w1[" in first
    assert "idle in transaction in Client/ClientRead for " in first
