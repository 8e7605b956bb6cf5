"""Where a job stands and who is in its way, in one line: a failure's first line is all that some logs keep of it."""

from __future__ import annotations

from typing import Any

import psycopg

# Who has the row: its last version names the transaction that changed or locked it, of which a session holds the lock.
# A row that several have locked names a group of them instead, so every open transaction is told of as well.
SESSIONS = """
select a.pid, a.application_name, a.state, a.wait_event_type, a.wait_event,
       pg_blocking_pids(a.pid) as blocked_by, left(a.query, 60) as query,
       extract(epoch from clock_timestamp() - a.xact_start) as in_transaction,
       exists (select from pg_locks l join x_jobs j on j.xmax = l.transactionid
               where l.pid = a.pid and l.locktype = 'transactionid' and l.granted) as has_row
from pg_stat_activity a
where a.xact_start is not null and a.pid <> pg_backend_pid() and a.application_name <> ''
  and a.datname = current_database()
order by has_row desc, a.xact_start
"""
JOBS = """
select j.name, j.state, j.claimed_by, j.claims, j.attempt,
       extract(epoch from clock_timestamp() - j.visible_at) as lapsed, j.last_error
from x_jobs j
where j.ended_as is null
order by j.id
"""
MOST = 8


def told(connection: psycopg.Connection[dict[str, Any]]) -> str:
    """Answer the live jobs, then the sessions in a transaction, those first that hold a job's row."""
    jobs = [_job(row) for row in connection.execute(JOBS).fetchmany(MOST)]
    sessions = [_session(row) for row in connection.execute(SESSIONS).fetchmany(MOST)]
    return f"{'; '.join(jobs) or 'no live job'} | {'; '.join(sessions) or 'nobody is in a transaction'}"


def _job(row: dict[str, Any]) -> str:
    lease = "" if row["lapsed"] is None else f", lease over for {row['lapsed']:.1f} s"
    held = "" if row["claimed_by"] is None else f" by {row['claimed_by']} (claim {row['claims']}){lease}"
    error = "" if row["last_error"] is None else f", last error {row['last_error']:.80}"
    return f"{row['name']} {row['state']}{held}, attempt {row['attempt']}{error}"


def _session(row: dict[str, Any]) -> str:
    waits = "" if row["wait_event"] is None else f" in {row['wait_event_type']}/{row['wait_event']}"
    blocked = f" behind {row['blocked_by']}" if row["blocked_by"] else ""
    holds = "HOLDS THE ROW: " if row["has_row"] else ""
    query = " ".join(row["query"].split())
    return (
        f"{holds}{row['application_name']}[{row['pid']}] {row['state']}{waits}{blocked}"
        f" for {row['in_transaction']:.1f} s: {query}"
    )
