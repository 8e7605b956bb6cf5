"""A batch that was begun together with the end of the one before, where the pass is told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.clock import real_monotonic
from rowsweep.lifecycle import Lifecycle
from rowsweep.sweeps.batch.in_place import SetWork
from tests.sweeps.field import Background, Field, until, wait_for

ROWS, BATCH_ROWS = 40, 4
TRIED = """
create sequence tried;
create function note_try() returns trigger language plpgsql as $$
begin
  perform nextval('tried');
  return null;
end $$;
create trigger note_try after update on orders for each statement execute function note_try();
"""


@pytest.fixture
def run(field: Field) -> Any:
    """A launched sweep whose batches are begun ahead; `tried` counts them, whatever became of each."""
    field.orders(ROWS, more=", hits int not null default 0")
    field.sql(TRIED)
    sweep = rs.backfill("count", rows=rs.Rows("orders"), set={"hits": "hits + 1"}, batch_rows=BATCH_ROWS, adapt=False)
    return sweep.launch()


def tried(field: Field) -> int:
    return int(field.one("select case when is_called then last_value else 0 end from tried"))


def behind(monkeypatch: pytest.MonkeyPatch, rows: int, act: Callable[[], object]) -> None:
    """Do something once so many rows are committed, while the next batch is begun."""
    following = SetWork.next

    def noting(work: SetWork, at: Any, limit: int, *, stored: bool) -> Any:
        done = following(work, at, limit, stored=stored)
        if done.at.rows == rows:
            assert work._finder.held.begun is not None
            act()
        return done

    monkeypatch.setattr(SetWork, "next", noting)


def test_a_batch_begun_ahead_is_closed_before_a_pause_and_none_behind_it(
    field: Field, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-079, N-080: the close that hears of the pause has begun one more batch; that one is done, and no other."""
    behind(monkeypatch, 12, run.pause)
    assert field.tick().outcome == "suspended"
    row = field.row(run)
    assert (row.status, row.rows, row.batches, tried(field)) == ("paused", 20, 5, 5)
    run.resume()
    assert field.finish(run)["rows"] == ROWS
    assert (field.sql("select distinct hits from orders"), tried(field)) == ([(1,)], ROWS // BATCH_ROWS)


def test_a_batch_begun_ahead_is_closed_before_a_drain(field: Field, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-193: its work is handed on with the run instead of being done twice."""
    reached, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        wait_for(go_on)

    behind(monkeypatch, 12, wait)
    worker = field.worker(lifecycle=Lifecycle())
    worker.start()
    wait_for(reached)
    stopping = Background(lambda: worker.stop("deploy", deadline_at=real_monotonic() + 20))
    until(lambda: worker.state == "draining", "it drains")
    go_on.set()
    stopping.result()
    field.workers.clear()
    row = field.row(run)
    assert (row.status, row.rows, row.batches, tried(field)) == ("running", 16, 4, 4)
    assert field.finish(run)["rows"] == ROWS
    assert tried(field) == ROWS // BATCH_ROWS


def test_a_batch_begun_ahead_is_rolled_back_by_a_cancel(
    field: Field, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-081: what was committed when the cancel came is all there is."""
    behind(monkeypatch, 12, lambda: run.cancel("enough"))
    assert field.tick().outcome == "interrupted"
    row = field.row(run)
    assert (row.status, row.rows, row.batches, tried(field)) == ("cancelled", 12, 3, 4)
    assert field.one("select count(*) from orders where hits = 1") == 12
