"""Cutting a sweep off at every batch: its effects are those of one undisturbed pass, or the test says so."""

from __future__ import annotations

import pytest

import rowsweep as rs
from rowsweep.testing import drain, interrupt_after

ROWS, SIZE = 10, 3
BATCHES = 4


@pytest.fixture
def shop(rowsweep_postgres: rs.App) -> rs.App:
    """Ten orders in a fresh schema."""
    with rowsweep_postgres.driver.transaction() as opened:
        opened.connection.execute("create table orders (id bigint primary key, hits integer not null default 0)")
        opened.connection.execute("insert into orders (id) select generate_series(1, %s)", [ROWS])
    return rowsweep_postgres


def hits(app: rs.App) -> list[int]:
    """Answer how often each order was swept."""
    with app.driver.transaction() as opened:
        return [row[0] for row in opened.connection.execute("select hits from orders order by id").fetchall()]


@pytest.mark.parametrize("batches", range(BATCHES + 2))
def test_an_atomic_sweep_is_exactly_once_wherever_it_is_cut_off(shop: rs.App, batches: int) -> None:
    """N-116: for every n; the cut-off batch rolls back, the run goes on behind its checkpoint."""
    sweep = rs.backfill("hits", rows=rs.Rows("orders"), set={"hits": "hits + 1"}, batch_rows=SIZE, adapt=False)
    run = sweep.launch()
    with interrupt_after(batches) as interruption:
        (execution,) = drain()
    assert interruption.happened == (batches < BATCHES)
    assert interruption.committed == min(batches, BATCHES)
    assert execution.outcome == ("interrupted" if interruption.happened else "completed")
    assert sum(hits(shop)) == min(batches * SIZE, ROWS)
    drain()
    assert hits(shop) == [1] * ROWS
    assert run.wait("5s")["rows"] == ROWS


@pytest.mark.parametrize("batches", range(BATCHES))
def test_an_outside_effect_is_repeated_for_the_batch_that_was_cut_off(shop: rs.App, batches: int) -> None:
    """N-116, DESIGN §4: at least once, under the same key; effects that go by the key are those of one pass."""
    sent: list[str] = []
    kept: dict[str, int] = {}

    @rs.backfill("index", rows=rs.Rows("orders"), atomic=False, batch_rows=SIZE, adapt=False)
    def index(batch: rs.Batch) -> None:
        sent.append(batch.key)
        kept[batch.key] = len(batch.rows)

    index.launch()
    with interrupt_after(batches):
        drain()
    drain()
    assert len(sent) == BATCHES + 1
    assert sum(kept.values()) == ROWS


def test_several_interruptions_of_one_run_add_up(shop: rs.App) -> None:
    """N-116: each attempt goes on where the one before was cut off."""
    sweep = rs.backfill("hits", rows=rs.Rows("orders"), set={"hits": "hits + 1"}, batch_rows=1, adapt=False)
    run = sweep.launch()
    for _ in range(4):
        with interrupt_after(2):
            drain()
    assert run.snapshot().batches == 8
    drain()
    assert hits(shop) == [1] * ROWS
