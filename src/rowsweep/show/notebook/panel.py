"""The widgets of one live view: what is shown of the run, and the buttons that steer it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from rowsweep.show.html import run as page
from rowsweep.show.html.style import STYLE, marked
from rowsweep.show.notebook.outputs import answer_meanwhile
from rowsweep.show.words.clean import as_html

if TYPE_CHECKING:
    from rowsweep.sweeps.snapshot import Snapshot

Verb = Literal["pause", "resume", "cancel", "tune"]

_IN_THE_WAY: Final = "pausing", "cancelling", "resuming"


class RunPanel:
    """Show snapshots in widgets whose places do not move; `press` is told which verb was chosen, and a rate to tune to.

    `hides` is the class of the static view that it stands in for while it is on the page. Cancelling asks once more.
    """

    def __init__(self, snapshot: Snapshot, press: Callable[[Verb, str], None], *, hides: str) -> None:
        import ipywidgets

        self._press = press
        self._snapshot = snapshot
        self._style = ipywidgets.HTML(
            f"{STYLE}<style>.{hides},.jp-OutputArea-child:has(.{hides}){{display:none}}</style>"
        )
        self._parts = {name: ipywidgets.HTML() for name in ("head", "bar", "figures", "says", "more")}
        self._toggle = ipywidgets.Button(description="Pause")
        self._cancel = ipywidgets.Button(description="Cancel …", tooltip=f"End the run of {snapshot.name}")
        self._sure = ipywidgets.Button(
            description="Cancel the run", button_style="danger", tooltip="What is committed stays; the rest is not done"
        )
        self._keep = ipywidgets.Button(description="Keep it going", tooltip="Do not cancel")
        self._asked = ipywidgets.HTML('<div class="rowsweep">End this run? What is committed stays.</div>')
        self._rate = ipywidgets.Text(
            placeholder="2000/s, or none",
            description="At most",
            layout=ipywidgets.Layout(width="15em"),
            style={"description_width": "initial"},
            tooltip=f"The most rows in a period for {snapshot.name}, such as 2000/s; none lifts the limit",
        )
        self._tune = ipywidgets.Button(
            description="Set", tooltip=f"Let {snapshot.name} go at most so fast", layout=ipywidgets.Layout(width="4em")
        )
        self._calm_children = (self._toggle, self._cancel, self._rate, self._tune)
        self._buttons = ipywidgets.HBox(self._calm_children, layout=ipywidgets.Layout(flex_flow="row wrap"))
        self._tune.on_click(lambda _: self._set_rate())
        self._toggle.on_click(lambda _: self._steer("resume" if self._toggle.description == "Resume" else "pause"))
        self._cancel.on_click(lambda _: self._ask())
        self._sure.on_click(lambda _: self._steer("cancel"))
        self._keep.on_click(lambda _: self._calm())
        self.box = ipywidgets.VBox([self._style, *self._parts.values(), self._buttons])
        self.box.add_class("rowsweep-live")
        answer_meanwhile((self.box, *self._calm_children, self._sure, self._keep))
        self.show(snapshot)

    def show(self, snapshot: Snapshot, *, retry_in: float | None = None) -> None:
        """Bring the widgets to this snapshot; only what is different is sent."""
        self._snapshot = snapshot
        self._set("head", page.head(snapshot))
        self._set("bar", page.bar(snapshot))
        self._set("figures", page.figures(snapshot))
        self._set("says", page.says(snapshot, retry_in=retry_in))
        self._set("more", page.more(snapshot))
        self._offer(snapshot)

    def say(self, words: str) -> None:
        """Say something in the place of what the run waits for."""
        self._set("says", f'<div class="rs-says" role="status">{marked(as_html(words), "warn")}</div>')

    def close(self) -> None:
        """Take the buttons away: there is nobody behind them any more."""
        self._buttons.children = ()

    def _set(self, name: str, markup: str) -> None:
        self._parts[name].value = f'<div class="rowsweep">{markup}</div>'

    def _offer(self, snapshot: Snapshot) -> None:
        """Offer what can be done in this state."""
        goes_on = snapshot.status in ("paused", "failed", "cancelled") and snapshot.words != "resuming"
        self._toggle.description = "Resume" if goes_on else "Pause"
        self._toggle.icon = "play" if goes_on else "pause"
        verb = "Let it go on behind its last batch" if goes_on else "Pause behind the batch in flight"
        self._toggle.tooltip = f"{verb}: {snapshot.name}"
        self._toggle.disabled = snapshot.words in _IN_THE_WAY
        self._cancel.disabled = not snapshot.is_open or snapshot.words == "cancelling"
        self._rate.disabled = self._tune.disabled = not snapshot.is_open
        if snapshot.status == "done":
            self.close()
        elif not snapshot.is_open:
            self._calm()

    def _ask(self) -> None:
        self._buttons.children = (self._asked, self._sure, self._keep)

    def _calm(self) -> None:
        if self._buttons.children != self._calm_children:
            self._buttons.children = self._calm_children

    def _steer(self, verb: Verb) -> None:
        self._calm()
        self._toggle.disabled = self._cancel.disabled = True
        self._press(verb, "")

    def _set_rate(self) -> None:
        if self._rate.value.strip():
            self._press("tune", self._rate.value.strip())
