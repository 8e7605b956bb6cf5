"""What a pass may do, what it leaves, and the pass that follows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.sweeps.passes.progress import Progress
from rowsweep.sweeps.purge.ending import Ending
from rowsweep.sweeps.run import ledger_of
from tests.sweeps.field import Field
from tests.sweeps.purge.events import declare, left, make_events, old_events
from tests.sweeps.purge.test_passes import Noted


def waiting(field: Field) -> list[tuple[Any, ...]]:
    """Read the jobs that wait: name, state, key, and in how many seconds they are due."""
    return field.queue_sql(
        "select name, state, idempotency_key, extract(epoch from run_at - now())::float8, run_id from {x_jobs} "
        "where state in ('ready', 'delayed') order by created_at"
    )


def test_a_pass_stops_at_its_budget_and_the_next_follows(field: Field) -> None:
    """D-8: the backlog is reported, and the next pass is due in 60 s, with a ledger row of its own."""
    make_events(field, 100, 10)
    purge = declare(budget=rs.Budget(rows=30), batch_rows=10, adapt=False)
    run = purge.launch(rate="100000/s")
    result = field.finish(run)
    assert (result["removed"], result["backlog"]) == ({"events": 30}, {"events": 70})
    assert (field.row(run).status, field.row(run).rows) == ("done", 30)
    assert field.job(run).attempt == 1
    ((name, state, _, seconds, run_id),) = waiting(field)
    assert (name, state) == ("retention", "delayed")
    assert 30 < seconds <= 60
    following = field.row(run_id)
    assert (following.kind, following.status, following.options) == ("purge", "running", {"rate": "100000/s"})
    assert following.launched_by == f"job:retention:{field.job(run).id}"
    attached = purge.launch()
    assert (attached.attached, attached.run_id) == (True, run_id)


def test_passes_follow_each_other_until_nothing_is_left(field: Field) -> None:
    """D-8: each its own run; the keys that they are live under take turns."""
    make_events(field, 100, 10)
    run = declare(budget=rs.Budget(rows=30), batch_rows=10, adapt=False).launch()
    field.finish(run)
    keys = []
    for _ in range(3):
        keys.append(waiting(field)[0][2])
        field.queue_sql("update {x_jobs} set run_at = now() where state = 'delayed'")
        assert field.tick().outcome == "completed"
    assert waiting(field) == []
    assert left(field) == 10
    assert len(set(keys)) == 2
    rows = [row.rows for row in ledger_of(field.app.driver).list(name="retention", status="done")]
    assert sorted(rows) == [10, 30, 30, 30]


def test_one_pass_follows_however_many_leave_a_backlog(field: Field) -> None:
    """D-8: an hourly launch does not start another chain."""
    make_events(field, 100, 10)
    purge = declare(budget=rs.Budget(rows=10), batch_rows=10, adapt=False)
    field.finish(purge.launch())
    for number in range(3):
        purge.enqueue(None, key=f"hour-{number}")
        field.tick()
    assert len(waiting(field)) == 1
    assert left(field) == 70


def test_the_time_at_work_is_a_budget_too(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-8."""
    make_events(field, 100, 10)
    monkeypatch.setattr(Progress, "active_seconds", property(lambda _: 61.0))
    result = field.sweep(declare(budget=rs.Budget(time="1m")))
    assert (result["removed"], result["backlog"]) == ({"events": 0}, {"events": 100})


def test_targets_behind_a_spent_budget_are_a_backlog(field: Field) -> None:
    """D-8: one that cannot be counted is one nevertheless."""
    make_events(field, 20, 10)
    make_events(field, 5, 10, table="more")
    noted = Noted()
    purge = declare(old_events(), old_events("more"), noted, budget=rs.Budget(rows=20), batch_rows=20, adapt=False)
    result = field.sweep(purge)
    assert result["removed"] == {"events": 20, "more": 0, "noted": 0}
    assert result["backlog"] == {"more": 5, "noted": None}
    assert noted.asked == []
    assert len(waiting(field)) == 1


def test_a_pass_that_just_fits_leaves_no_backlog(field: Field) -> None:
    """D-8."""
    make_events(field, 20, 10)
    result = field.sweep(declare(budget=rs.Budget(rows=20), batch_rows=20, adapt=False))
    assert (result["backlog"], waiting(field)) == ({}, [])


def test_held_rows_are_no_backlog(field: Field) -> None:
    """D-8: another pass in a minute would not move them."""
    make_events(field, 20, 10)
    field.sql("create table notes (event_id bigint references events); insert into notes values (3)")
    result = field.sweep(declare())
    assert (result["removed"], result["backlog"], waiting(field)) == ({"events": 19}, {}, [])


def test_the_ledger_row_and_the_next_pass_come_together(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-8, N-060: a crash in between leaves neither."""
    make_events(field, 20, 10)
    run = declare(budget=rs.Budget(rows=10), batch_rows=10, adapt=False, retry=rs.Retry(base="0s")).launch()
    monkeypatch.setattr(Ending, "_come_back", lambda *_: 1 / 0)
    assert field.tick().outcome == "retried"
    assert (field.row(run).status, waiting(field)[0][4]) == ("running", run.run_id)
    monkeypatch.undo()
    result = field.finish(run)
    assert result["removed"] == {"events": 10}
    assert len(waiting(field)) == 1


def test_the_budget_is_checked_when_it_is_made() -> None:
    """S-014."""
    assert rs.Budget(time=timedelta(minutes=5)).seconds == 300
    assert (rs.Budget().seconds, rs.Budget().rows) == (600, 5_000_000)
