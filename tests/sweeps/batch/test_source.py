"""Sweeps of another database than the queue's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import psycopg
import pytest
from psycopg_pool import ConnectionPool

import rowsweep as rs
from rowsweep.errors import InvalidDeclaration, UnknownSource
from tests.places import own_database
from tests.sweeps.field import Field

FRAME = rs.Rows("items", columns=["id", "n"])


@pytest.fixture
def other(server_dsn: str) -> Iterator[str]:
    """The DSN of another database, with a table of 10 rows, 1…10."""
    with own_database(server_dsn) as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("create table items (id int primary key, n int not null default 0)")
            connection.execute("insert into items select generate_series(1, 10)")
        yield dsn


def counts(dsn: str) -> list[Any]:
    """Answer what each row was counted to."""
    with psycopg.connect(dsn) as connection:
        return [row[0] for row in connection.execute("select n from items order by id")]


def add_in_frame(batch: rs.Batch) -> pl.DataFrame:
    """Add 1 by a returned frame."""
    return batch.frame.select("id", n=pl.col("n") + 1)


def add_by_sql(batch: rs.Batch) -> None:
    """Add 1 by SQL on the batch's connection."""
    batch.execute("update items set n = n + 1 where id = any(%s)", [[row["id"] for row in batch.rows]])


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("handler", [add_in_frame, add_by_sql])
def test_a_handler_sweeps_another_database(field: Field, other: str, handler: Any, atomic: bool) -> None:
    """D-1, N-066: pages, handler and write-back are there; checkpoint and ledger are in the queue's database."""
    sweep = rs.backfill("add", handler, rows=FRAME, source=other, batch_rows=3, adapt=False, atomic=atomic)
    totals = field.sweep(sweep)
    assert (totals["rows"], totals["batches"]) == (10, 4)
    assert counts(other) == [1] * 10


def test_expressions_sweep_another_database(field: Field, other: str) -> None:
    """D-1."""
    sweep = rs.backfill("add", rows=rs.Rows("items"), set={"n": "n + 1"}, source=other, batch_rows=3, adapt=False)
    assert field.sweep(sweep)["written"] == 10
    assert counts(other) == [1] * 10


def test_a_pool_of_the_application_is_a_source(field: Field, other: str) -> None:
    """D-1: its connections come back as they were."""
    with ConnectionPool(other, min_size=1, max_size=1) as pool:
        field.sweep(rs.backfill("add", rows=rs.Rows("items"), set={"n": "n + 1"}, source=pool))
        with pool.connection() as connection:
            assert connection.autocommit is False
    assert counts(other) == [1] * 10


def test_a_batch_whose_checkpoint_was_lost_is_repeated_with_its_key_and_bounds(
    field: Field, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-066, S-187: the source commits first; what is repeated has the same `batch.key`, and no row is skipped."""
    from rowsweep.sweeps.batch.closing import Closer

    close = Closer.close
    keys: list[tuple[str, list[int]]] = []
    failed: list[Any] = []

    def failing(self: Closer, before: Any, after: Any, marker: str, *, stored: bool) -> Any:
        if after.index == 1 and not failed:
            failed.append(after)
            raise RuntimeError("the worker is gone")
        return close(self, before, after, marker, stored=stored)

    def handler(batch: rs.Batch) -> None:
        keys.append((batch.key, [row["id"] for row in batch.rows]))
        add_by_sql(batch)

    monkeypatch.setattr(Closer, "close", failing)
    retry = rs.Retry(attempts=3, base="0s")
    field.sweep(rs.backfill("add", handler, rows=FRAME, source=other, batch_rows=5, adapt=False, retry=retry))
    assert counts(other) == [1] * 5 + [2] * 5
    assert keys[1] == keys[2] != keys[0]


def test_a_preview_of_another_database_leaves_it_alone(field: Field, other: str) -> None:
    """N-090."""
    frame = rs.backfill("add", rows=rs.Rows("items"), set={"n": "n + 1"}, source=other).preview(2)
    assert frame.rows() == [(1, 0, 1), (2, 0, 1)]
    assert counts(other) == [0] * 10


def test_a_table_missing_there_is_refused_at_launch(field: Field, other: str) -> None:
    """N-050: it is the source that is asked."""
    field.orders(1)
    with pytest.raises(UnknownSource, match="orders"):
        rs.backfill("add", rows=rs.Rows("orders"), set={"qty": "1"}, source=other).launch()


def test_a_source_is_a_dsn_or_a_pool_and_never_shown(other: str) -> None:
    """D-1, N-109."""
    with pytest.raises(InvalidDeclaration, match="source"):
        rs.backfill("add", rows=rs.Rows("items"), set={"n": "1"}, source=5)
    sweep = rs.backfill("add", rows=rs.Rows("items"), set={"n": "1"}, source=f"{other} password=geheim")
    assert "geheim" not in f"{sweep!r} {sweep.spec!r} {sweep.describe()}"
