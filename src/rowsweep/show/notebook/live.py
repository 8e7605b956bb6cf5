"""Open a live view of a run below a cell."""

from __future__ import annotations

import threading
import warnings
from secrets import token_hex
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from rowsweep.clock import SystemClock, real_monotonic
from rowsweep.errors import RowsweepError
from rowsweep.show.html.bundle import bundle
from rowsweep.show.notebook import outputs
from rowsweep.show.notebook.panel import RunPanel, Verb

if TYPE_CHECKING:
    from rowsweep.show.notebook.poller import Poller
    from rowsweep.sweeps.snapshot import Snapshot

_SECONDS_BETWEEN_PICTURES: Final = 10.0


class Steered(Protocol):
    """A run, as a view needs it."""

    @property
    def run_id(self) -> UUID:
        """Its id."""

    def snapshot(self) -> Snapshot:
        """Answer how it stands."""

    def pause(self, reason: str | None = None) -> Snapshot:
        """Pause it."""

    def resume(self, reason: str | None = None) -> Snapshot:
        """Let it go on."""

    def cancel(self, reason: str | None = None) -> Snapshot:
        """End it."""

    def tune(self, *, rate: str | None = None) -> Snapshot:
        """Change how fast it goes."""


def show_run(run: Steered, poller: Poller) -> None:
    """Show the run below the cell that runs: live in a kernel for as long as it is open, else as it stands.

    An error is warned about before it is raised: IPython may keep what display hooks raise to itself.
    """
    try:
        snapshot = run.snapshot()
        if not outputs.in_kernel() or snapshot.status == "done":
            outputs.show_once(picture(snapshot))
        else:
            RunView(run, poller).open(snapshot)
    except Exception as error:
        warnings.warn(f"rowsweep cannot show this run: {error!r}", RuntimeWarning, stacklevel=2)
        raise


def picture(snapshot: Snapshot, *, mark: str = "", note: str = "") -> dict[str, str]:
    """Answer the run as a bundle that stands still: what a saved notebook shows."""
    return bundle(snapshot, at=SystemClock().now() if snapshot.is_open else None, mark=mark, note=note)


class PanelView:
    """Keep the widgets of one run up to date, and do what is pressed on them."""

    def __init__(self, run: Steered, poller: Poller) -> None:
        self._run = run
        self._poller = poller
        self._lock = threading.Lock()
        self.panel: RunPanel | None = None

    @property
    def run_id(self) -> UUID:
        """The run it shows."""
        return self._run.run_id

    def make(self, snapshot: Snapshot, *, hides: str) -> RunPanel:
        """Make the widgets; `hides` is as in `RunPanel`."""
        self.panel = RunPanel(snapshot, self._press, hides=hides)
        return self.panel

    def show(self, snapshot: Snapshot) -> None:
        """Bring the view to this snapshot."""
        with self._lock:
            if self.panel is not None:
                self.panel.show(snapshot, retry_in=_seconds_until(snapshot))
            self._shown(snapshot)

    def say(self, words: str) -> None:
        """Say why the run cannot be shown."""
        if self.panel is not None:
            self.panel.say(words)

    def _shown(self, snapshot: Snapshot) -> None:
        """Do what else a new snapshot asks for."""

    def _press(self, verb: Verb, rate: str) -> None:
        """Steer the run on a thread of its own: the kernel may be at work, or the database slow to answer."""
        threading.Thread(target=self._steer, args=(verb, rate), name="rowsweep-steer", daemon=True).start()

    def _steer(self, verb: Verb, rate: str) -> None:
        try:
            if verb == "tune":
                self.show(self._run.tune(rate=rate))
            else:
                self.show(getattr(self._run, verb)("in the notebook"))
        except RowsweepError as error:
            self.say(f"{error.cause} {error.fix}")
        self._poller.watch(self)


class RunView(PanelView):
    """Show one run twice: as a picture that the notebook keeps, and as widgets that take its place while they live.

    The picture is renewed when the state changes, and every few seconds. Without ipywidgets it is all there is.
    """

    def __init__(self, run: Steered, poller: Poller) -> None:
        super().__init__(run, poller)
        self._mark = f"rowsweep-{token_hex(6)}"
        self._picture = outputs.Output()
        self._pictured = ""
        self._next_picture_at = 0.0

    def open(self, snapshot: Snapshot) -> None:
        """Put the view below the cell, and keep it up to date."""
        if outputs.has_widgets():
            box = self.make(snapshot, hides=self._mark).box
            outputs.while_on_a_page(box, lambda: self._poller.watch(self), lambda: self._poller.forget(self))
        self._take_picture(snapshot)
        if self.panel is not None:
            outputs.show_once(outputs.widget_bundle(self.panel.box))
        self._poller.watch(self)

    def _shown(self, snapshot: Snapshot) -> None:
        is_due = real_monotonic() >= self._next_picture_at or self.panel is None
        if is_due or snapshot.words != self._pictured:
            self._take_picture(snapshot)

    def _take_picture(self, snapshot: Snapshot) -> None:
        self._pictured = snapshot.words
        self._next_picture_at = real_monotonic() + _SECONDS_BETWEEN_PICTURES
        note = "" if self.panel is not None else outputs.NO_WIDGETS
        self._picture.show(picture(snapshot, mark=self._mark, note=note))


def _seconds_until(snapshot: Snapshot) -> float | None:
    if snapshot.retry_at is None or not snapshot.words.startswith("retrying"):
        return None
    return max((snapshot.retry_at - SystemClock().now()).total_seconds(), 0.0)
