"""How long an executor lives, and what its start and a lost connection cost."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.sweeps.batch.work import HandlerCall
from tests.sweeps.executors import heavy
from tests.sweeps.executors.held import Held, over
from tests.sweeps.field import Field, fields_of, until, wait_for


def test_a_preview_runs_out_there(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-090: the real path; nothing stays."""
    field.orders(10)
    names: set[str] = set()
    heavy.hooks.append(lambda _batch: names.add(threading.current_thread().name))
    frame = over(threads).preview(3)
    assert frame["total_after"].to_list() == [2 * qty for qty in frame["qty"]]
    assert field.one("select count(total) from orders") == 0
    assert names
    assert all(name.startswith("ThreadPoolExecutor") for name in names)


def test_a_preview_locks_no_row_while_its_executor_starts(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-090: a cluster may take its time."""
    field.orders(4)

    def make() -> ThreadPoolExecutor:
        with field.other() as other:
            other.execute("set lock_timeout = '1s'")
            other.execute("update orders set qty = 5")
        return threads

    assert over(make).preview(4)["total_after"].to_list() == [10, 10, 10, 10]


def test_a_passs_own_executor_ends_with_it_and_the_callers_does_not(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-058: made when first needed, one for each pass."""
    field.orders(8)
    made: list[ThreadPoolExecutor] = []

    def make() -> ThreadPoolExecutor:
        made.append(ThreadPoolExecutor(2))
        return made[-1]

    sweep = over(make)
    assert made == []
    field.sweep(sweep)
    field.sweep(sweep, force=True)
    assert len(made) == 2
    for pool in made:
        with pytest.raises(RuntimeError, match="after shutdown"):
            pool.submit(int)
    field.sweep(over(threads, name="given"))
    assert threads.submit(int).result() == 0


def test_the_time_that_an_executor_takes_to_start_is_no_batchs(field: Field, caplog: pytest.LogCaptureFixture) -> None:
    """N-068: or the first pages, and those after them, would be cut to pieces for it."""
    field.orders(8)
    caplog.set_level(logging.DEBUG, logger="rowsweep")

    def make() -> ThreadPoolExecutor:
        threading.Event().wait(1.5)
        return ThreadPoolExecutor(2)

    field.sweep(over(make))
    durations = [batch["duration_ms"] for batch in fields_of(caplog.records, "sweeps.batch")]
    assert len(durations) == 2
    assert max(durations) < 1_400


def test_a_closed_connection_between_two_pages_is_taken_anew(
    field: Field, threads: ThreadPoolExecutor, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-062, N-069: a lost connection costs the pages ahead and nothing else."""
    field.orders(24, more=", hits int not null default 0")
    pids: list[int] = []
    write = HandlerCall.write

    def noted(self: HandlerCall, *given: Any) -> int:
        pids.append(self.finder.held.connection.info.backend_pid)
        return write(self, *given)

    monkeypatch.setattr(HandlerCall, "write", noted)
    held = Held(2)
    run = over(threads, heavy.counting, rows=rs.Rows("orders", columns=["id", "hits"])).launch()
    with field.working():
        wait_for(held.reached)
        until(lambda: field.row(run).rows == 8)
        assert field.one("select pg_terminate_backend(%s)", [pids[-1]])
        held.free.set()
        assert run.wait(timeout="20s")["rows"] == 24
    assert len(set(pids)) == 2
    assert field.sql("select hits, count(*) from orders group by 1") == [(1, 24)]
