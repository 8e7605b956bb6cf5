"""Put outputs below a cell and replace them later; everything IPython is asked is asked here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from secrets import token_hex
from typing import Any

from rowsweep.show.html.frame import preview_html

WIDGET_TYPE = "application/vnd.jupyter.widget-view+json"
NO_WIDGETS = "<small>For a view with buttons: pip install 'rowsweep[notebook]', then restart the kernel.</small>"
_WORDS = "(a live view; its last state is the output above)"


def in_kernel() -> bool:
    """Whether this process is a notebook's kernel, whose outputs can be replaced and hold widgets."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def has_widgets() -> bool:
    """Whether ipywidgets is installed."""
    return find_spec("ipywidgets") is not None


def answer_meanwhile(widgets: Iterable[Any]) -> None:
    """Let these widgets answer while a cell runs, such as one that waits for the run.

    JupyterLab sends what is pressed to a subshell, which is free; ipykernel hands it to the shell that the widget was
    last heard from, where the cell runs. Kernels without subshells answer behind the cell.
    """
    for widget in widgets:
        if hasattr(widget.comm, "_reply_subshell_for"):
            widget.comm._reply_subshell_for = lambda _, asked: asked


def show_previews() -> None:
    """Let a kernel show what a preview answers side by side; asked again, it changes nothing."""
    if not in_kernel():
        return
    shell = sys.modules["IPython"].get_ipython()
    shell.display_formatter.formatters["text/html"].for_type_by_name(
        "rowsweep.sweeps.previewed", "PreviewFrame", preview_html
    )


class Output:
    """One output of a cell; `text/plain` is always in what it shows."""

    def __init__(self) -> None:
        self._id = f"rowsweep-{token_hex(8)}"
        self._shown: Mapping[str, Any] | None = None

    def show(self, bundle: Mapping[str, Any]) -> None:
        """Put the output below the cell that runs, or replace it where it is there; the same again is not sent."""
        if bundle == self._shown:
            return
        _publish(bundle, display_id=self._id, update=self._shown is not None)
        self._shown = dict(bundle)


def show_once(bundle: Mapping[str, Any]) -> None:
    """Put an output below the cell that runs, for good."""
    _publish(bundle)


def while_on_a_page(widget: Any, drawn: Callable[[], None], gone: Callable[[], None]) -> None:
    """Call `gone` when no page shows the widget any more (its output was cleared), `drawn` when one does again."""
    was_drawn = False

    def pages_changed(change: Any) -> None:
        nonlocal was_drawn
        if change["new"]:
            was_drawn = True
            drawn()
        elif was_drawn:
            gone()

    # Counting begins at zero, which an output that nobody has drawn yet has too.
    widget._view_count = 0
    widget.observe(pages_changed, "_view_count")


def widget_bundle(widget: Any) -> dict[str, Any]:
    """Answer the bundle of a live widget; where no widget can be shown, the output beside it speaks for it."""
    view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    return {"text/plain": _WORDS, "text/html": f"<!-- {_WORDS} -->", WIDGET_TYPE: view}


def _publish(bundle: Mapping[str, Any], **how: Any) -> None:
    from IPython.display import display

    publish: Callable[..., None] = display
    publish(dict(bundle), raw=True, **how)
