"""Jobs as a frame."""

from __future__ import annotations

import polars as pl

import rowsweep as rs
from rowsweep.operate.frame import jobs_frame
from rowsweep.operate.operator import Operator
from tests.queue.world import World, new_job


def test_jobs_are_a_frame_newest_first(operate: Operator, world: World) -> None:
    """S-387, S-015: instants as such, what is JSON as its text, over more pages than one."""
    world.running(input={"a": [1]})
    world.jobs.enqueue([new_job() for _ in range(205)])
    frame = jobs_frame(operate, limit=1_000)
    assert frame.height == 206
    assert frame["created_at"].dtype == pl.Datetime("us", "UTC")
    assert frame["id"].to_list() == [job.id for job in operate.walk(limit=1_000)]
    (first,) = jobs_frame(operate, state="running").to_dicts()
    assert (first["input"], first["result"], first["attempt"]) == ('{"a":[1]}', None, 1)
    assert jobs_frame(operate, limit=7).height == 7


def test_no_jobs_are_a_frame_with_the_same_columns(operate: Operator, world: World) -> None:
    """S-387."""
    empty = jobs_frame(operate)
    world.enqueue()
    assert empty.height == 0
    assert empty.schema == jobs_frame(operate).schema


def test_the_connected_app_lists_its_jobs() -> None:
    """S-006: `rs.jobs()`, beside the package of that name, which `from rowsweep.jobs import …` still reaches."""
    from rowsweep.jobs import registry

    app = rs.connect(driver=rs.MemoryDriver(), work=False)
    try:
        app.stores().jobs.enqueue([new_job("a"), new_job("b")])
        assert rs.jobs(name="b")["name"].to_list() == app.jobs(name="b")["name"].to_list() == ["b"]
        assert [view.name for view in app.operate.list()] == ["b", "a"]
        assert registry.__name__ == "rowsweep.jobs.registry"
    finally:
        app.close()
