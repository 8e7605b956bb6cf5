"""A role that may hold few connections: what shards need of them, and what a pool without a free one says."""

from __future__ import annotations

import secrets

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import rowsweep as rs
from rowsweep.app.connecting import connect
from rowsweep.jobs.registry import reset_jobs
from rowsweep.lifecycle import Lifecycle
from rowsweep.queue.postgres.install import install
from rowsweep.queue.postgres.translate import unreachable
from rowsweep.worker.worker import Worker
from tests import places

SHARDS, ROWS = 3, 2_000


def test_a_pool_without_a_free_connection_says_what_gives_it_room() -> None:
    """N-114, S-432: the database is there; another one, or memory, would not help."""
    fix = unreachable("here", "all 1 connections of rowsweep-work are in use").fix
    assert "connection limit" in str(fix)
    assert "concurrency" in str(fix)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("elsewhere", [0, 1])
def test_shards_work_with_the_four_connections_that_any_worker_needs(server_dsn: str, elsewhere: int) -> None:
    """N-040, N-087: as README promises, also where others of the role hold one: they take turns over what is left."""
    role = f"few_{secrets.token_hex(6)}"
    with places.own_database(server_dsn) as dsn, psycopg.connect(dsn, autocommit=True) as admin:
        named = sql.Identifier(role)
        admin.execute(sql.SQL("create role {0} login; grant create, usage on schema public to {0}").format(named))
        theirs = make_conninfo(dsn, user=role)
        try:
            with psycopg.connect(theirs, autocommit=True) as own:
                own.execute("create table things (k int primary key, n int not null default 0)")
                own.execute("insert into things select generate_series(1, %s::int)", [ROWS])
                install(own)
            reset_jobs()
            admin.execute(sql.SQL("alter role {} connection limit {}").format(named, sql.Literal(4 + elsewhere)))
            others = [psycopg.connect(theirs) for _ in range(elsewhere)]
            app = connect(theirs, work=False, health="off")
            worker = Worker(driver=app.driver, context=lambda: None, concurrency=SHARDS, lifecycle=Lifecycle())
            try:
                sweep = rs.backfill(
                    "count-up", rows=rs.Rows("things"), set={"n": "n + 1"}, shards=SHARDS, batch_rows=100
                )
                run = sweep.launch()
                worker.start()
                assert run.wait("60s")["rows"] == ROWS
                assert admin.execute("select max(attempt) from x_jobs").fetchone() == (1,)
            finally:
                worker.stop()
                app.close()
                for other in others:
                    other.close()
                reset_jobs()
        finally:
            admin.execute(sql.SQL("drop owned by {0}; drop role {0}").format(named))
