"""Pause, resume, cancel, drain and pace, between the batches of a purge."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rowsweep.clock import real_monotonic
from rowsweep.errors import SweepCancelled
from rowsweep.lifecycle import Lifecycle
from rowsweep.sweeps.purge.passes import PurgePass
from rowsweep.sweeps.purge.work import DeleteWork
from tests.sweeps.field import Background, Field, cut_off, fields_of, until, wait_for
from tests.sweeps.purge.events import declare, left, make_events


class Interrupting:
    """Do something once, before the batch behind so many removed rows begins."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rows: int, act: Any) -> None:
        self._next = DeleteWork.next
        self._left = [act]
        outer = self

        def following(work: DeleteWork, at: Any, limit: int, *, stored: bool) -> Any:
            if at.rows >= rows and outer._left:
                outer._left.pop()()
            return outer._next(work, at, limit, stored=stored)

        monkeypatch.setattr(DeleteWork, "next", following)


def test_a_purge_pauses_behind_its_batch_and_goes_on(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-8, N-079, N-080: behind the batch that was begun with the end of the one that heard of it."""
    make_events(field, 100, 10)
    run = declare(batch_rows=10, adapt=False).launch()
    Interrupting(monkeypatch, 30, run.pause)
    assert field.tick().outcome == "suspended"
    assert (run.snapshot().words, run.snapshot().rows, left(field)) == ("paused", 50, 60)
    run.resume()
    assert field.finish(run)["removed"] == {"events": 100}
    assert field.row(run).batches == 10


def test_a_cancelled_purge_stops_and_can_go_on(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-8, N-081, N-082: what is committed stays gone, and no row goes twice."""
    make_events(field, 100, 10)
    run = declare(batch_rows=10, adapt=False).launch()
    Interrupting(monkeypatch, 30, lambda: run.cancel("enough"))
    field.tick()
    with pytest.raises(SweepCancelled):
        run.wait("1s")
    assert (run.snapshot().rows, left(field)) == (30, 80), "the batch in flight lost its claim and rolled back"
    run.resume()
    assert field.finish(run)["removed"] == {"events": 100}


def test_a_drain_hands_a_purge_back(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-8, S-193: behind the batch in flight, uncounted, and another worker goes on."""
    make_events(field, 100, 10)
    reached, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        wait_for(go_on)

    run = declare(batch_rows=10, adapt=False).launch()
    Interrupting(monkeypatch, 30, wait)
    worker = field.worker(lifecycle=Lifecycle())
    worker.start()
    wait_for(reached)
    stopping = Background(lambda: worker.stop("deploy", deadline_at=real_monotonic() + 20))
    until(lambda: worker.state == "draining", "it drains")
    go_on.set()
    stopping.result()
    field.workers.clear()
    job = field.job(run)
    assert (run.snapshot().rows, job.state, job.attempt) == (40, "ready", 0)
    assert field.finish(run)["removed"] == {"events": 100}


def test_the_rate_paces_a_purge(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-6, D-8: in rows removed."""
    make_events(field, 60, 10)
    waits: list[float] = []
    wait = PurgePass._wait

    def noted(self: PurgePass, seconds: float, why: str, **named: bool) -> None:
        waits.append(seconds)
        wait(self, seconds, why, **named)

    monkeypatch.setattr(PurgePass, "_wait", noted)
    field.sweep(declare(batch_rows=20, adapt=False, rate="40/s"))
    assert len(waits) >= 2
    assert all(0 < seconds <= 0.5 for seconds in waits)


def test_a_lock_that_a_batch_meets_costs_no_attempt(
    field: Field, hasty: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-069: a lock on the table is waited for, at half the size."""
    make_events(field, 40, 10)
    run = declare(batch_rows=20, adapt=False, lock_timeout="50ms").launch()
    recover = PurgePass._recover
    met: list[Exception] = []
    with field.other() as other:
        other.execute("begin; lock table events in share mode")

        def recovered(self: PurgePass, error: Exception) -> None:
            met.append(error)
            if len(met) == 2:
                other.execute("rollback")
            recover(self, error)

        monkeypatch.setattr(PurgePass, "_recover", recovered)
        assert field.finish(run)["removed"] == {"events": 40}
    (shrunk,) = fields_of(caplog.records, "sweeps.batch.shrunk")
    assert (shrunk["sqlstate"], shrunk["batch_rows"]) == ("55P03", 10)
    assert field.job(run).attempt == 1


@pytest.mark.parametrize("lands", [True, False])
def test_a_commit_whose_answer_is_lost_is_counted_once(
    field: Field, hasty: None, lands: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-062: the checkpoint says whether the rows are gone."""
    make_events(field, 100, 10)
    run = declare(batch_rows=10, adapt=False).launch()
    happened = cut_off(monkeypatch, lands=(lambda: field.row(run).rows > 10) if lands else None)
    assert field.finish(run)["removed"] == {"events": 100}
    assert happened
    assert (left(field), field.row(run).rows) == (10, 100)


def test_a_worker_that_lost_its_claim_removes_nothing_more(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-060: the batch of a holder that was stopped and came back rolls back."""
    make_events(field, 40, 10)
    run = declare(batch_rows=10, adapt=False).launch()
    Interrupting(monkeypatch, 20, lambda: field.steal(run))
    field.tick()
    assert left(field) == 30
    assert field.row(run).rows == 20
