"""The live board, without a page to be shown on."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from ipywidgets import HTML, Button

from rowsweep.errors import DriverUnavailable
from rowsweep.operate.board import Board
from rowsweep.show.notebook import board as module
from rowsweep.show.notebook import outputs
from rowsweep.show.notebook.board import BoardView
from tests.show.boards import board
from tests.show.notebook.test_live import Run, StillPoller


class Source:
    """Boards to be taken; each taking is noted."""

    def __init__(self) -> None:
        self.now: Board | Exception = board()
        self.taken = 0
        self.again = threading.Semaphore(0)

    def take(self, _: Board | None) -> Board:
        self.taken += 1
        self.again.release()
        if isinstance(self.now, Exception):
            raise self.now
        return self.now

    def next(self) -> None:
        assert self.again.acquire(timeout=10)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    done: list[dict[str, Any]] = []
    monkeypatch.setattr(outputs, "in_kernel", lambda: True)
    monkeypatch.setattr(outputs, "_publish", lambda bundle, **how: done.append({**bundle, **how}))
    monkeypatch.setattr(module, "_BEAT_SECONDS", 0.02)
    monkeypatch.setattr(module, "_LONGEST_BEAT_SECONDS", 0.05)
    return done


@pytest.fixture
def source() -> Source:
    return Source()


def opened(source: Source) -> tuple[BoardView, StillPoller]:
    poller = StillPoller()
    view = BoardView(source.take, lambda _: Run(), poller)
    view._ipython_display_()
    return view, poller


def texts(widget: Any) -> str:
    if isinstance(widget, HTML):
        return str(widget.value)
    return "".join(map(texts, getattr(widget, "children", ())))


def buttons(widget: Any) -> list[Button]:
    if isinstance(widget, Button):
        return [widget]
    return [button for child in getattr(widget, "children", ()) for button in buttons(child)]


def test_it_is_a_picture_and_live_widgets(published: list[dict[str, Any]], source: Source) -> None:
    """N-102: with `text/plain` in both."""
    view, _ = opened(source)
    view.close()
    picture, widgets = published[:2]
    assert "order-totals" in picture["text/html"]
    assert outputs.WIDGET_TYPE in widgets
    assert picture["text/plain"]
    assert widgets["text/plain"]


def test_it_is_asked_for_again_and_shows_what_changed(published: list[dict[str, Any]], source: Source) -> None:
    view, _ = opened(source)
    source.now = board(workers=(), runs=board().runs[:1])
    for _ in range(4):
        source.next()
    view.close()
    assert "No worker lives." in texts(view._widgets["rest"])
    assert len(view._widgets["rows"].children) == 1


def test_each_sweep_opens_its_own_view_and_closes_it(published: list[dict[str, Any]], source: Source) -> None:
    """N-103: kept up to date by the poller that all views share."""
    view, poller = opened(source)
    view.close()
    row = view._widgets["rows"].children[0]
    buttons(row)[0].click()
    assert [button.description for button in buttons(row)] == ["Close", "Pause", "Cancel …", "Set"]
    assert len(poller.watching) == 1
    buttons(row)[0].click()
    assert [button.description for button in buttons(row)] == ["Open"]
    assert poller.watching == []


def test_it_stops_asking_when_its_output_is_cleared(published: list[dict[str, Any]], source: Source) -> None:
    view, _ = opened(source)
    thread = view._thread
    assert thread is not None
    view.close()
    thread.join(10)
    assert not thread.is_alive()


def test_a_database_that_does_not_answer_is_said_and_asked_again(
    published: list[dict[str, Any]], source: Source
) -> None:
    view, _ = opened(source)
    source.now = DriverUnavailable("gone", fix="wait")
    for _ in range(4):
        source.next()
    assert "does not answer, trying again: gone" in texts(view._widgets["head"])
    source.now = board()
    for _ in range(4):
        source.next()
    view.close()
    assert "shop on localhost" in texts(view._widgets["head"])


def test_without_a_kernel_it_stands_still(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[dict[str, Any]] = []
    monkeypatch.setattr(outputs, "_publish", lambda bundle, **how: done.append({**bundle, **how}))
    view, _ = opened(source)
    assert len(done) == 1
    assert source.taken == 1
    assert "order-totals" in repr(view)


def test_no_value_becomes_markup(published: list[dict[str, Any]], source: Source) -> None:
    """N-104."""
    view, _ = opened(source)
    view.close()
    shown = texts(view._widgets["rows"]) + texts(view._widgets["rest"])
    assert "<b>" not in shown
    assert "&lt;b&gt;bands&lt;/b&gt;" in shown
