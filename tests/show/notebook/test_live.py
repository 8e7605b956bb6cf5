"""What a view puts below its cell, and when it is renewed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from rowsweep.errors import SweepNotLive
from rowsweep.queue.stores.ledger import Backfill
from rowsweep.show.notebook import outputs
from rowsweep.show.notebook.live import RunView, show_run
from rowsweep.show.notebook.poller import Poller
from rowsweep.sweeps.snapshot import Snapshot
from tests.show.snapshots import snapshot

DONE = {"status": "done", "words": "done", "percent": 100.0, "total_is": "exact"}


class Run:
    """A run that stands where it is put."""

    run_id = UUID("01998f0a-1b2c-7d3e-8f40-123456789abc")

    def __init__(self, **changed: Any) -> None:
        self.now = snapshot(**changed)
        self.refuses: Exception | None = None
        self.verbs: list[tuple[str, str | None]] = []
        self.steered = threading.Event()

    def snapshot(self) -> Snapshot:
        return self.now

    def pause(self, reason: str | None = None) -> Snapshot:
        return self._steer("pause", reason)

    def resume(self, reason: str | None = None) -> Snapshot:
        return self._steer("resume", reason)

    def cancel(self, reason: str | None = None) -> Snapshot:
        return self._steer("cancel", reason)

    def tune(self, *, rate: str | None = None) -> Snapshot:
        return self._steer("tune", rate)

    def _steer(self, verb: str, reason: str | None) -> Snapshot:
        self.verbs.append((verb, reason))
        self.steered.set()
        if self.refuses is not None:
            raise self.refuses
        return self.now


class StillPoller(Poller):
    """Notes who watches and asks nothing."""

    def __init__(self) -> None:
        super().__init__(self._nothing)
        self.watching: list[Any] = []
        self.asked = threading.Event()

    @staticmethod
    def _nothing(_: Sequence[UUID]) -> list[Backfill]:
        return []

    def watch(self, watcher: Any) -> None:
        if watcher not in self.watching:
            self.watching.append(watcher)
        self.asked.set()

    def forget(self, watcher: Any) -> None:
        self.watching.remove(watcher)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is put below cells of a kernel, each with how."""
    done: list[dict[str, Any]] = []
    monkeypatch.setattr(outputs, "in_kernel", lambda: True)
    monkeypatch.setattr(outputs, "_publish", lambda bundle, **how: done.append({**bundle, **how}))
    return done


def opened(run: Run) -> tuple[RunView, StillPoller]:
    poller = StillPoller()
    show_run(run, poller)
    return poller.watching[0], poller


def test_a_run_is_put_below_the_cell_as_a_picture_and_as_widgets(published: list[dict[str, Any]]) -> None:
    """N-102, N-103: with `text/plain` in every output."""
    view, _ = opened(Run())
    picture, widgets = published
    assert "order-totals" in picture["text/html"]
    assert outputs.WIDGET_TYPE not in picture
    assert widgets[outputs.WIDGET_TYPE]["model_id"]
    assert widgets["text/html"].startswith("<!--")
    assert all(output["text/plain"] for output in published)
    assert view.run_id == Run.run_id


def test_the_picture_is_renewed_when_the_state_changes_and_now_and_then(
    published: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-103: in a saved notebook the last snapshot stays readable."""
    view, _ = opened(Run())
    del published[:]
    view.show(snapshot(rows=824_000))
    assert published == []
    view.show(snapshot(rows=825_000, words="paused", status="paused"))
    assert published[0]["update"] is True
    assert "825,000" in published[0]["text/html"]
    monkeypatch.setattr(view, "_next_picture_at", 0.0)
    view.show(snapshot(rows=826_000, words="paused", status="paused"))
    assert "826,000" in published[1]["text/html"]
    assert published[1]["display_id"] == published[0]["display_id"]


def test_a_run_that_is_done_is_a_picture_for_good(published: list[dict[str, Any]]) -> None:
    """N-103: nothing is asked."""
    poller = StillPoller()
    show_run(Run(**DONE), poller)
    assert poller.watching == []
    assert len(published) == 1
    assert outputs.WIDGET_TYPE not in published[0]


def test_without_ipywidgets_the_picture_moves_and_says_what_to_install(
    published: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-001, N-103: without ipywidgets it is HTML."""
    monkeypatch.setattr(outputs, "has_widgets", lambda: False)
    view, _ = opened(Run())
    view.show(snapshot(rows=824_000))
    assert len(published) == 2
    assert "pip install 'rowsweep[notebook]'" in published[1]["text/html"]
    assert "824,000" in published[1]["text/html"]


def test_a_view_whose_output_was_cleared_asks_no_longer_until_it_is_drawn_again(
    published: list[dict[str, Any]],
) -> None:
    """N-103: ten views cost one query, none cost none."""
    view, poller = opened(Run())
    assert view.panel is not None
    for pages, watching in ((1, [view]), (0, []), (1, [view]), (2, [view]), (1, [view]), (0, [])):
        view.panel.box._view_count = pages
        assert poller.watching == watching


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel"])
def test_a_button_steers_the_run_and_says_so_in_the_ledger(verb: Any, published: list[dict[str, Any]]) -> None:
    """N-079, N-103."""
    run = Run()
    view, _ = opened(run)
    view._press(verb, "")
    assert run.steered.wait(60)
    assert run.verbs == [(verb, "in the notebook")]


def test_a_rate_is_tuned(published: list[dict[str, Any]]) -> None:
    """N-122."""
    run = Run()
    view, _ = opened(run)
    view._press("tune", "500/s")
    assert run.steered.wait(60)
    assert run.verbs == [("tune", "500/s")]


def test_a_refusal_is_said_in_the_view(published: list[dict[str, Any]]) -> None:
    """S-012: with its fix."""
    run = Run()
    view, poller = opened(run)
    run.refuses = SweepNotLive("It has <ended>.", fix="launch it again")
    poller.asked.clear()
    view._press("pause", "")
    assert poller.asked.wait(60)
    assert view.panel is not None
    text = "".join(part.value for part in view.panel.box.children[1:-1])
    assert "It has &lt;ended&gt;. launch it again" in text


def test_an_error_in_the_display_is_warned_about_and_raised(published: list[dict[str, Any]]) -> None:
    """N-102."""
    with pytest.warns(RuntimeWarning, match="cannot show this run"), pytest.raises(TypeError):
        show_run(Run(percent="much"), StillPoller())
