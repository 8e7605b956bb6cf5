"""What keeps open views up to date."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest

from rowsweep.errors import DriverUnavailable
from rowsweep.queue.stores.ledger import Backfill
from rowsweep.show.notebook.poller import BEAT_SECONDS, Poller
from rowsweep.sweeps.snapshot import Snapshot

BEAT = 0.1
AT = datetime(2026, 1, 2, tzinfo=UTC)


def row(run_id: UUID, **changed: Any) -> Backfill:
    fields: dict[str, Any] = {
        "run_id": run_id, "name": "totals", "kind": "backfill", "checksum": "c", "app_version": None,
        "environment": "test", "status": "running", "wanted": "run", "waiting_for": None, "rows": 10, "written": 10,
        "batches": 1, "cursor": None, "estimated_rows": 100, "estimate_source": "plan", "active_seconds": 1.0,
        "samples": [], "shards": None, "input": None, "options": None, "rejected_rows": 0,
        "launched_by": None, "last_error": None, "last_error_code": None, "started_at": AT, "updated_at": AT,
        "finished_at": None, "live": True, "job_id": run_id, "job_state": "running", "attempt": 1,
        "max_attempts": 20, "retry_at": None,
    }  # fmt: skip
    return Backfill(**{**fields, **changed})


class Ledger:
    """Rows to be read, and how often they were; `fails` is raised instead while it is set."""

    def __init__(self) -> None:
        self.rows: dict[UUID, Backfill] = {}
        self.asked: list[tuple[float, set[UUID]]] = []
        self.fails: Exception | None = None

    def open(self, **changed: Any) -> UUID:
        run_id = uuid4()
        self.rows[run_id] = row(run_id, **changed)
        return run_id

    def read(self, run_ids: Sequence[UUID]) -> list[Backfill]:
        self.asked.append((time.monotonic(), set(run_ids)))
        if self.fails is not None:
            raise self.fails
        return [self.rows[run_id] for run_id in run_ids if run_id in self.rows]


class Watcher:
    """A view that notes what it is shown."""

    def __init__(self, run_id: UUID, show: Callable[[Snapshot], None] | None = None) -> None:
        self.run_id = run_id
        self.shown: list[Snapshot] = []
        self.said: list[str] = []
        self.heard = threading.Condition()
        self._show = show

    def show(self, snapshot: Snapshot) -> None:
        with self.heard:
            self.shown.append(snapshot)
            self.heard.notify_all()
        if self._show is not None:
            self._show(snapshot)

    def say(self, words: str) -> None:
        with self.heard:
            self.said.append(words)
            self.heard.notify_all()

    def until(self, fact: Callable[[], bool]) -> None:
        with self.heard:
            assert self.heard.wait_for(fact, timeout=10)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def poller(ledger: Ledger) -> Iterator[Poller]:
    poller = Poller(ledger.read, beat_seconds=BEAT)
    yield poller
    poller.close("over")
    settled(poller)


def settled(poller: Poller) -> None:
    """Wait until its thread has ended."""
    for thread in threading.enumerate():
        if thread.name == "rowsweep-views":
            thread.join(10)
    assert not poller.is_asking


def test_ten_views_of_one_run_and_one_of_another_cost_one_statement(ledger: Ledger, poller: Poller) -> None:
    """N-103: updated at most twice a second by one statement."""
    one, other = ledger.open(), ledger.open(name="other")
    watchers = [*(Watcher(one) for _ in range(10)), Watcher(other)]
    for watcher in watchers:
        poller.watch(watcher)
    for watcher in watchers:
        watcher.until(lambda watcher=watcher: len(watcher.shown) >= 3)  # type: ignore[misc]
    assert len(ledger.asked) <= max(len(watcher.shown) for watcher in watchers) + 1
    assert ledger.asked[-1][1] == {one, other}
    assert watchers[-1].shown[0].name == "other"


def test_nothing_is_asked_more_than_twice_a_second_however_often_views_are_opened(
    ledger: Ledger, poller: Poller
) -> None:
    """N-103."""
    run_id = ledger.open()
    watcher = Watcher(run_id)
    poller.watch(watcher)
    while len(ledger.asked) < 4:
        poller.watch(Watcher(run_id))
        watcher.until(lambda: bool(watcher.shown))
        time.sleep(0.01)
    times = [at for at, _ in ledger.asked]
    assert all(after - before >= BEAT * 0.98 for before, after in pairwise(times))
    assert BEAT_SECONDS == 0.5


def test_a_view_whose_run_has_ended_is_asked_for_no_longer(ledger: Ledger, poller: Poller) -> None:
    """N-103: when finished it stops asking."""
    watcher = Watcher(ledger.open(status="done", rows=100))
    poller.watch(watcher)
    watcher.until(lambda: bool(watcher.shown))
    settled(poller)
    assert len(ledger.asked) == 1
    assert watcher.shown[-1].words == "done"


def test_it_asks_again_for_a_run_that_goes_on(ledger: Ledger, poller: Poller) -> None:
    """N-082, N-103: a failed run that is resumed from its view."""
    watcher = Watcher(ledger.open(status="failed"))
    poller.watch(watcher)
    watcher.until(lambda: bool(watcher.shown))
    settled(poller)
    ledger.rows[watcher.run_id] = row(watcher.run_id)
    poller.watch(watcher)
    watcher.until(lambda: watcher.shown[-1].words == "running")


def test_a_view_that_is_forgotten_ends_the_asking(ledger: Ledger, poller: Poller) -> None:
    """N-103: the view was closed."""
    watcher = Watcher(ledger.open())
    poller.watch(watcher)
    watcher.until(lambda: bool(watcher.shown))
    poller.forget(watcher)
    settled(poller)


def test_batch_figures_are_of_the_time_between_two_beats(ledger: Ledger, poller: Poller) -> None:
    watcher = Watcher(ledger.open())
    poller.watch(watcher)
    watcher.until(lambda: bool(watcher.shown))
    before = ledger.rows[watcher.run_id]
    ledger.rows[watcher.run_id] = replace(before, rows=1_010, batches=3, active_seconds=1.5)
    watcher.until(lambda: watcher.shown[-1].rows == 1_010)
    assert (watcher.shown[-1].batch_rows, watcher.shown[-1].batch_ms) == (500, 250)


def test_a_ledger_that_does_not_answer_is_said_and_asked_again(ledger: Ledger, poller: Poller) -> None:
    """N-102: nothing is swallowed."""
    watcher = Watcher(ledger.open())
    ledger.fails = DriverUnavailable("gone", fix="wait")
    poller.watch(watcher)
    watcher.until(lambda: bool(watcher.said))
    assert watcher.said[0] == "The ledger does not answer, trying again: gone"
    ledger.fails = None
    watcher.until(lambda: bool(watcher.shown))


def test_a_run_without_a_row_is_said_and_not_asked_for_again(ledger: Ledger, poller: Poller) -> None:
    watcher = Watcher(uuid4())
    poller.watch(watcher)
    watcher.until(lambda: bool(watcher.said))
    settled(poller)
    assert "no row of this run" in watcher.said[0]


@pytest.mark.filterwarnings("default:rowsweep closed a view:RuntimeWarning")
def test_a_view_that_cannot_be_shown_is_warned_about_and_leaves_the_others_be(
    ledger: Ledger, poller: Poller, recwarn: pytest.WarningsRecorder
) -> None:
    """N-102."""

    def broken(_: Snapshot) -> None:
        raise ValueError("no such widget")

    run_id = ledger.open()
    one, other = Watcher(run_id, broken), Watcher(run_id)
    poller.watch(one)
    poller.watch(other)
    other.until(lambda: len(other.shown) >= 3)
    assert len(one.shown) == 1
    assert "no such widget" in str(recwarn.pop(RuntimeWarning).message)


def test_what_is_read_for_another_reason_is_shown_at_once(ledger: Ledger, poller: Poller) -> None:
    """N-103: a notebook that ends behind `run.wait()` keeps the end."""
    watcher, other = Watcher(ledger.open()), Watcher(ledger.open())
    poller.watch(watcher)
    poller.watch(other)
    watcher.until(lambda: bool(watcher.shown))
    ledger.rows[watcher.run_id] = row(watcher.run_id, status="done")
    poller.tell(ledger.rows[watcher.run_id])
    assert watcher.shown[-1].status == "done"
    assert {shown.status for shown in other.shown} <= {"running"}


def test_a_closed_connection_is_said_to_every_view(ledger: Ledger, poller: Poller) -> None:
    watcher = Watcher(ledger.open())
    poller.watch(watcher)
    poller.close("closed")
    assert watcher.said == ["closed"]
    settled(poller)
    poller.watch(Watcher(watcher.run_id))
    assert not poller.is_asking
