"""Open a live view of a run below a cell."""

from __future__ import annotations

import threading
import warnings
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from rowsweep.clock import SystemClock, real_monotonic
from rowsweep.errors import RowsweepError
from rowsweep.show.html.run import snapshot_html
from rowsweep.show.notebook import outputs
from rowsweep.show.notebook.panel import RunPanel, Verb
from rowsweep.show.plain import snapshot_line

if TYPE_CHECKING:
    from rowsweep.show.notebook.poller import Poller
    from rowsweep.sweeps.snapshot import Snapshot

_SECONDS_BETWEEN_PICTURES: Final = 10.0
_NO_WIDGETS: Final = f"<small>For a view with buttons: {outputs.INSTALL}, then restart the kernel.</small>"


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


def picture(snapshot: Snapshot, *, mark: str = "", note: str = "") -> dict[str, Any]:
    """Answer the run as a bundle that stands still: what a saved notebook shows."""
    at = SystemClock().now() if snapshot.is_open else None
    return {"text/plain": snapshot_line(snapshot), "text/html": snapshot_html(snapshot, at=at, mark=mark, note=note)}


class RunView:
    """Show one run twice: as a picture that the notebook keeps, and as widgets that take its place while they live.

    The picture is renewed when the state changes, and every few seconds. Without ipywidgets it is all there is.
    """

    def __init__(self, run: Steered, poller: Poller) -> None:
        self._run = run
        self._poller = poller
        self._mark = f"rowsweep-{token_hex(6)}"
        self._picture = outputs.Output()
        self._panel: RunPanel | None = None
        self._lock = threading.Lock()
        self._pictured = ""
        self._next_picture_at = 0.0
        self._was_on_a_page = False

    @property
    def run_id(self) -> UUID:
        """The run it shows."""
        return self._run.run_id

    def open(self, snapshot: Snapshot) -> None:
        """Put the view below the cell, and keep it up to date."""
        if outputs.has_widgets():
            self._panel = RunPanel(snapshot, self._press, hides=self._mark)
            box = self._panel.box
            # Counting begins at zero, which an output that nobody has drawn yet has too.
            box._view_count = 0
            box.observe(self._pages_changed, "_view_count")
        self._take_picture(snapshot)
        if self._panel is not None:
            outputs.show_once(
                outputs.widget_bundle(self._panel.box, "(a live view; its last state is the output above)")
            )
        self._poller.watch(self)

    def show(self, snapshot: Snapshot) -> None:
        """Bring the view to this snapshot."""
        with self._lock:
            if self._panel is not None:
                self._panel.show(snapshot, retry_in=_seconds_until(snapshot))
            is_due = real_monotonic() >= self._next_picture_at or self._panel is None
            if is_due or snapshot.words != self._pictured:
                self._take_picture(snapshot)

    def say(self, words: str) -> None:
        """Say why the run cannot be shown."""
        if self._panel is not None:
            self._panel.say(words)

    def _take_picture(self, snapshot: Snapshot) -> None:
        self._pictured = snapshot.words
        self._next_picture_at = real_monotonic() + _SECONDS_BETWEEN_PICTURES
        note = "" if self._panel is not None else _NO_WIDGETS
        self._picture.show(picture(snapshot, mark=self._mark, note=note))

    def _pages_changed(self, change: Any) -> None:
        """Ask only for as long as a page shows the widgets: the output may be cleared, and drawn again."""
        if change["new"]:
            self._was_on_a_page = True
            self._poller.watch(self)
        elif self._was_on_a_page:
            self._poller.forget(self)

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


def _seconds_until(snapshot: Snapshot) -> float | None:
    if snapshot.retry_at is None or not snapshot.words.startswith("retrying"):
        return None
    return max((snapshot.retry_at - SystemClock().now()).total_seconds(), 0.0)
