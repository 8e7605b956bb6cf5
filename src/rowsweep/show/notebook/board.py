"""A live board below a cell: everything at a glance, each sweep opening its own view."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from rowsweep.clock import real_monotonic
from rowsweep.errors import RowsweepError
from rowsweep.show.board.views import board_bundle, head_html, sections_html
from rowsweep.show.html.style import STYLE, marked
from rowsweep.show.notebook import outputs
from rowsweep.show.notebook.live import PanelView, Steered
from rowsweep.show.words import facts, values
from rowsweep.show.words.clean import as_html
from rowsweep.show.words.late import late_words

if TYPE_CHECKING:
    from rowsweep.operate.board import Board
    from rowsweep.show.notebook.poller import Poller
    from rowsweep.sweeps.snapshot import Snapshot

_BEAT_SECONDS: Final = 2.0
_LONGEST_BEAT_SECONDS: Final = 15.0
_SLOWER: Final = 1.25
_SECONDS_BETWEEN_PICTURES: Final = 10.0

Take = Callable[["Board | None"], "Board"]


class BoardView:
    """Show a board as the last line of a cell, live in a kernel: asked for every two seconds, less often where nothing
    changes, and not at all once its output was cleared or `close()` called.

    In a terminal, and without ipywidgets, it stands still.
    """

    def __init__(self, take: Take, find: Callable[[str], Steered], poller: Poller) -> None:
        self._take = take
        self._find = find
        self._poller = poller
        self._mark = f"rowsweep-{token_hex(6)}"
        self._picture = outputs.Output()
        self._next_picture_at = 0.0
        self._rows: dict[str, _Row] = {}
        self._widgets: dict[str, Any] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return board_bundle(self._take(None))["text/plain"]

    def _ipython_display_(self) -> None:
        try:
            board = self._take(None)
            live = outputs.in_kernel() and outputs.has_widgets()
            note = "" if live or not outputs.in_kernel() else outputs.NO_WIDGETS
            self._picture.show(board_bundle(board, mark=self._mark, note=note))
            if live:
                self._open(board)
        except Exception as error:
            warnings.warn(f"rowsweep cannot show the board: {error!r}", RuntimeWarning, stacklevel=2)
            raise

    def close(self) -> None:
        """Ask no longer; what is shown stays."""
        self._thread = None
        self._wake.set()

    def _open(self, board: Board) -> None:
        import ipywidgets

        hiding = f"{STYLE}<style>.{self._mark},.jp-OutputArea-child:has(.{self._mark}){{display:none}}</style>"
        self._widgets = {
            "style": ipywidgets.HTML(hiding),
            "head": ipywidgets.HTML(),
            "rows": ipywidgets.VBox(),
            "rest": ipywidgets.HTML(),
        }
        box = ipywidgets.VBox(list(self._widgets.values()))
        box.add_class("rowsweep-live")
        self._show(board)
        outputs.while_on_a_page(box, self._start, self.close)
        outputs.show_once(outputs.widget_bundle(box))
        self._start()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep, name="rowsweep-board", daemon=True)
            self._thread.start()

    def _keep(self) -> None:
        beat, board = _BEAT_SECONDS, None
        while self._thread is threading.current_thread():
            try:
                taken = self._take(board)
            except RowsweepError as error:
                self._widgets["head"].value = _said(f"The database does not answer, trying again: {error.cause}")
                beat = _LONGEST_BEAT_SECONDS
            else:
                same = board is not None and replace(taken, taken_at=board.taken_at) == board
                beat = min(beat * _SLOWER, _LONGEST_BEAT_SECONDS) if same else _BEAT_SECONDS
                board = taken
                self._show(board)
            self._wake.wait(beat)
            self._wake.clear()

    def _show(self, board: Board) -> None:
        self._widgets["head"].value = f'<div class="rowsweep">{head_html(board)}<h4>Sweeps</h4></div>'
        self._widgets["rest"].value = f'<div class="rowsweep">{"".join(sections_html(board)[1:])}</div>'
        for run in board.runs:
            if run.run_id not in self._rows:
                self._rows[run.run_id] = _Row(run, self._find, self._poller)
            self._rows[run.run_id].show(run)
        shown = tuple(self._rows[run.run_id].box for run in board.runs) or (_nothing(),)
        if self._widgets["rows"].children != shown and (board.runs or not self._widgets["rows"].children):
            self._widgets["rows"].children = shown
        if real_monotonic() >= self._next_picture_at:
            self._next_picture_at = real_monotonic() + _SECONDS_BETWEEN_PICTURES
            self._picture.show(board_bundle(board, mark=self._mark))


class _Row:
    """One sweep of the board, and below it its own view while that is open."""

    def __init__(self, run: Snapshot, find: Callable[[str], Steered], poller: Poller) -> None:
        import ipywidgets

        self._run = run
        self._find = find
        self._poller = poller
        self._view: PanelView | None = None
        self._open = ipywidgets.Button(
            description="Open", tooltip=f"Open the view of {run.name}", layout=ipywidgets.Layout(width="5em")
        )
        self._line = ipywidgets.HTML(layout=ipywidgets.Layout(flex="1 1 auto"))
        self.box = ipywidgets.VBox([ipywidgets.HBox([self._open, self._line])])
        self._open.on_click(lambda _: self._toggle())
        outputs.answer_meanwhile((self._open,))

    def show(self, run: Snapshot) -> None:
        """Bring the line to this snapshot."""
        self._run = run
        rate = facts.shown_rate(run)
        state = marked(as_html(facts.state_words(run)), facts.tone(run.words))
        left = "" if run.eta_seconds is None else f"{values.span(run.eta_seconds)} left"
        cells = [
            as_html(run.name),
            f"{state} {as_html(facts.percent_words(run))}",
            ", ".join(filter(None, [f"{values.number(run.rows)} rows", facts.aside_words(run), late_words(run)])),
            "" if rate is None else values.rate(rate),
            left,
        ]
        said = "".join(f"<span>{cell}</span>" for cell in cells)
        self._line.value = f'<div class="rowsweep" style="max-width:none"><div class="rs-row">{said}</div></div>'

    def _toggle(self) -> None:
        if self._view is not None:
            self._poller.forget(self._view)
            self._view = None
            self.box.children = self.box.children[:1]
        else:
            self._view = PanelView(self._find(self._run.run_id), self._poller)
            panel = self._view.make(self._run, hides="rowsweep-none")
            self.box.children = (*self.box.children[:1], panel.box)
            self._poller.watch(self._view)
        self._open.description = "Open" if self._view is None else "Close"


def _nothing() -> Any:
    import ipywidgets

    return ipywidgets.HTML(_said("No sweep has run here yet."))


def _said(words: str) -> str:
    return f'<div class="rowsweep">{marked(as_html(words), "dim")}</div>'
