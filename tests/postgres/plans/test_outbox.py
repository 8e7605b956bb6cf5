"""The plans of the relay's statements: bounded by what is pending, whatever was published and the statistics say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from rowsweep.queue.postgres.statements.sql import Statement, load
from tests.places import queue_schema
from tests.postgres.plans.explain import explain

PUBLISHED, PENDING = 50_000, 300
ROWS = """
insert into x_outbox (id, name, input, idempotency_key, run_id, max_attempts, published_at, claimed_by, lease_until)
select ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'mail', '{}', n::text, gen_random_uuid(), 5,
       case when n %% %(each)s > 0 then now() end,
       case when n %% %(each)s = 0 and n %% 2 = 0 then 'r1' end,
       case when n %% %(each)s = 0 and n %% 2 = 0 then now() + interval '20 seconds' end
from generate_series(1, %(rows)s) n
"""


def statement(name: str) -> Statement:
    return load("rowsweep.queue.postgres.outbox.store")[name]


@pytest.fixture(scope="module", params=["stale", "fresh"])
def outbox_schema(server_dsn: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A schema with many published rows and a few that wait, which the statistics know of or not."""
    with queue_schema(server_dsn) as (name, connection):
        connection.execute("alter table x_outbox set (autovacuum_enabled = off); analyze x_outbox")
        connection.execute(ROWS, {"rows": PUBLISHED, "each": PUBLISHED // PENDING})
        if request.param == "fresh":
            connection.execute("analyze x_outbox")
        yield name


def test_a_claim_reads_what_is_pending_and_nothing_published(
    queue_session: psycopg.Connection[Any], outbox_schema: str
) -> None:
    """D-22, S-385: the index of what is pending finds it, the primary key leases it."""
    values = {"relay": "r2", "limit": 100, "lease": 30.0, "proof": None}
    plan = explain(queue_session, statement("claim"), outbox_schema, values)
    assert plan.indexes("x_outbox") == {"x_outbox_pending_idx", "x_outbox_pkey"}
    assert max(scan.removed for scan in plan.of("x_outbox")) <= 2 * PENDING
    assert plan.pages < 5_000


def test_marks_go_by_the_primary_key(queue_session: psycopg.Connection[Any], outbox_schema: str) -> None:
    """D-22: publish and release, a batch each."""
    rows = queue_session.execute(
        sql.SQL("select id from {}.x_outbox where published_at is null limit 100").format(sql.Identifier(outbox_schema))
    )
    ids = [row[0] for row in rows]
    for name in ("publish", "release"):
        plan = explain(queue_session, statement(name), outbox_schema, {"id": ids, "relay": "r1"})
        assert plan.indexes("x_outbox") == {"x_outbox_pkey"}
