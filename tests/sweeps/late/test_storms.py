"""Whatever is written around a sweep, and whenever it commits: each row is done as often as it became due."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import polars as pl
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rowsweep as rs
from tests.sweeps.field import Background, Field, until
from tests.sweeps.late.test_look import has_found_writers

ROWS, BATCH_ROWS, WRITERS = 24, 4, 3
KINDS = ("insert", "flash", "update", "savepoint", "commit", "rollback")


@dataclass(frozen=True)
class Step:
    """What one writer does while a batch is done: by which of them, in which batch, to which key."""

    batch: int
    writer: int
    kind: str
    key: int


STEPS = st.lists(
    st.builds(
        Step,
        batch=st.integers(0, ROWS // BATCH_ROWS - 1),
        writer=st.integers(0, WRITERS - 1),
        kind=st.sampled_from(KINDS),
        key=st.integers(1, ROWS),
    ),
    max_size=14,
)


class Writers:
    """Transactions beside the sweep; each row says in `owed` how often it became due.

    `came` are the keys that open transactions have inserted, by writer.
    """

    def __init__(self, connections: Sequence[psycopg.Connection[Any]]) -> None:
        self._connections = connections
        self.came: dict[int, set[int]] = {writer: set() for writer in range(len(connections))}
        for connection in connections:
            connection.execute("set lock_timeout = '20ms'")
            connection.execute("begin")

    def take(self, step: Step) -> None:
        """Take a step; one that would wait for the batch under way, or for another writer, is given up."""
        connection = self._connections[step.writer]
        behind = min(step.key, step.batch * BATCH_ROWS)
        try:
            if step.kind == "insert":
                connection.execute("insert into due (id, owed) values (%s, 1)", [step.key * 100 + 1])
                self.came[step.writer].add(step.key * 100 + 1)
            elif step.kind == "flash":
                inside = (step.batch * BATCH_ROWS + step.key % BATCH_ROWS) * 100 + 2
                connection.execute(f"insert into due (id, owed) values ({inside}, 1); commit; begin")
                self.came[step.writer].clear()
            elif step.kind in ("update", "savepoint"):
                parts = ("savepoint a", "release savepoint a") if step.kind == "savepoint" else ("select", "select")
                connection.execute(parts[0])
                text = "update due set is_due = true, owed = owed + 1 where id = %s and not is_due"
                connection.execute(text, [behind * 100])
                connection.execute(parts[1])
            else:
                connection.execute(f"{step.kind}; begin")
                self.came[step.writer].clear()
        except psycopg.Error:
            connection.execute("rollback; begin")
            self.came[step.writer].clear()

    def end(self) -> None:
        """Commit whatever is open."""
        for connection in self._connections:
            connection.execute("commit")


def declared(kind: str, script: Sequence[Step], writers: Writers, where: str | None = "is_due") -> Any:
    """Declare a sweep that adds one to each due row; its own write makes it due no longer."""
    taken: set[int] = set()

    def around(batch: rs.Batch) -> None:
        if batch.index not in taken:
            taken.add(batch.index)
            for step in script:
                if step.batch == batch.index:
                    writers.take(step)

    @rs.backfill("due", rows=rs.Rows("due", where=where), batch_rows=BATCH_ROWS, adapt=False)
    def due(batch: rs.Batch) -> pl.DataFrame | None:
        ids = [row["id"] for row in batch.rows]
        around(batch)
        if kind == "frame":
            return batch.frame.select("id", is_due=pl.lit(value=False), done=pl.col("done") + 1)
        with batch.connection.transaction():
            batch.execute("update due set is_due = false, done = done + 1 where id = any (%s)", [ids])
        return None

    return due


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["sql", "frame"])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=STEPS)
def test_each_row_is_done_as_often_as_it_became_due(field: Field, kind: str, script: list[Step]) -> None:
    """N-057, N-060: late rows are found, and none is done twice for once that it was due."""
    field.sql("drop table if exists due")
    field.sql("create table due (id int primary key, is_due bool default true, owed int, done int not null default 0)")
    field.sql("insert into due (id, owed) select i * 100, 1 from generate_series(1, %s) i", [ROWS])
    with ExitStack() as stack:
        writers = Writers([stack.enter_context(field.other()) for _ in range(WRITERS)])
        run = declared(kind, script, writers).launch(force=True)
        sweeping = Background(lambda: field.finish(run))
        waits = has_found_writers(field, run)
        until(lambda: waits() or not run.snapshot().is_open)
        writers.end()
        totals = sweeping.result()
        missed = field.sql("select id, is_due, owed, done from due where is_due or owed <> done order by id")
        assert (missed, totals["late"]["unsure"], totals["late"]["writers"]) == ([], 0, 0)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["sql", "frame"])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=STEPS)
def test_without_a_condition_no_row_is_done_twice_and_what_is_open_at_the_end_is_done(
    field: Field, kind: str, script: list[Step]
) -> None:
    """N-057, N-060: only rows of transactions that were over before the end may be missed."""
    field.sql("drop table if exists due")
    field.sql("create table due (id int primary key, is_due bool default true, owed int, done int not null default 0)")
    field.sql("insert into due (id, owed) select i * 100, 1 from generate_series(1, %s) i", [ROWS])
    with ExitStack() as stack:
        writers = Writers([stack.enter_context(field.other()) for _ in range(WRITERS)])
        run = declared(kind, script, writers, where=None).launch(force=True)
        sweeping = Background(lambda: field.finish(run))
        waits = has_found_writers(field, run)
        until(lambda: waits() or not run.snapshot().is_open)
        came = [key for keys in writers.came.values() for key in keys]
        writers.end()
        totals = sweeping.result()
    surely = "id % 100 = 0 or id = any (%s)".replace("%", "%%", 1)
    assert field.sql(f"select id, done from due where done > 1 or (done = 0 and ({surely}))", [came]) == []
    assert totals["late"]["rows"] >= len(came) if waits() else not came
