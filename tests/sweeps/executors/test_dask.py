"""A handler on a Dask cluster of real processes."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import SweepFailed
from tests.sweeps.executors import heavy
from tests.sweeps.field import Field, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("default"),  # what the cluster's own threads warn of as it goes down
]


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client of two worker processes on the loopback address, without a dashboard."""
    distributed: Any = importlib.import_module("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def on(client: Any, name: str, handler: Any, **given: Any) -> Any:
    """Declare a sweep whose handler runs on the cluster."""
    options: dict[str, Any] = {"rows": heavy.ORDERS, "batch_rows": 100, "adapt": False}
    return rs.backfill(name, handler, executor=client.get_executor(), **(options | given))


def test_a_sweep_runs_on_a_cluster(field: Field, client: Any) -> None:
    """N-058, N-060: every row once, on both workers; the executor is the caller's, and stays."""
    field.orders(2_000)
    sweep = on(client, "placed", heavy.whereabouts)
    assert sweep.preview(2)["band_after"].null_count() == 0
    assert field.sweep(sweep)["written"] == 2_000
    pids = {int(pid) for (pid,) in field.sql("select distinct band from orders")}
    assert pids == set(client.run(os.getpid).values())
    assert os.getpid() not in pids
    assert sweep.spec.executor.submit(int).result() == 0


def test_a_handler_is_told_apart_from_itself_over_the_same_rows(field: Field, client: Any) -> None:
    """N-060: a cluster answers the same call from memory; a page that is sent twice is computed twice."""
    field.orders(100)
    field.sweep(on(client, "first", heavy.tokens))
    (first,) = field.sql("select distinct band from orders")
    field.sweep(on(client, "second", heavy.tokens))
    assert field.sql("select distinct band from orders") != [first]


def test_an_error_on_a_cluster_is_told_as_in_process(field: Field, client: Any) -> None:
    """N-083; an executor that a function makes ends with each pass, and the client stays."""
    field.orders(20)
    options: dict[str, Any] = {"rows": heavy.ORDERS, "batch_rows": 4, "adapt": False}
    run = rs.backfill("odd", heavy.odd, executor=client.get_executor, **options).launch()
    with pytest.raises(SweepFailed):
        field.finish(run)
    row = field.row(run)
    assert row.rows == 4
    assert (row.last_error or "").startswith("OddError: row 6 is odd: six")
    assert client.submit(int).result() == 0


def test_a_killed_worker_of_a_cluster_costs_nothing(field: Field, client: Any) -> None:
    """N-060: its pages are computed by another; each row is written once, in one attempt."""
    field.orders(4_000, more=", hits int not null default 0")
    rows = rs.Rows("orders", columns=["id", "hits"])
    run = on(client, "killed", heavy.counting, rows=rows, rate="4000/s").launch()
    with field.working():
        until(lambda: field.row(run).rows >= 500)
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        assert run.wait(timeout="100s")["rows"] == 4_000
    assert field.sql("select hits, count(*) from orders group by 1") == [(1, 4_000)]
    assert field.job(run).attempt == 1
