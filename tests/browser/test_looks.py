"""How a run looks in every state, in both themes; the README's pictures are taken here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import ROOT, Lab

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

STATES = ("running", "paused", "failed", "done", "unknown", "long")
README_PICTURES = ("run-running-light", "run-failed-dark")
GALLERY = """
import sys
sys.path.insert(0, {root!r})
import ipywidgets
from rowsweep.show.notebook.panel import RunPanel
from tests.show.snapshots import snapshot

samples = tuple((s + 1.0, int(90_000 * (s + 1) + 40_000 * (s % 3))) for s in range(9))
usual = dict(samples=samples, rows=823_000, active_seconds=9.4)
states = dict(
    running=dict(),
    paused=dict(status="paused", words="paused"),
    failed=dict(status="failed", words="failed", last_error="ValueError: order 17 has no price\\n  in totals()",
                last_error_code="ValueError"),
    done=dict(status="done", words="done", rows=2_000_000, total_is="exact", percent=100.0),
    unknown=dict(total=None, total_is="unknown", percent=None, eta_seconds=None, waiting_for="lock timeout"),
    long=dict(name="order " * 20, words="retrying at 2026-01-02 03:04:05 UTC", attempt=3, last_error="no " * 200),
)
panels = dict()
for name, changed in states.items():
    panels[name] = RunPanel(snapshot(**(usual | changed)), lambda verb, rate: None, hides="nothing")
    panels[name].box.add_class("state-" + name)
ipywidgets.VBox([panel.box for panel in panels.values()])
"""
CHANGE = """
for name in ("running", "paused", "unknown"):
    panels[name].show(snapshot(**(usual | states[name] | dict(rows=1_999_999, waiting_for="rate", eta_seconds=99_999,
                                                              rows_per_second=1.0, rejected_rows=12, attempt=3))))
"""


def gallery(lab: Lab, page: Page, theme: str) -> Locator:
    lab.use_theme(theme)
    lab.write("gallery.ipynb", [GALLERY.format(root=str(ROOT)), CHANGE])
    notebook = lab.open(page, "gallery.ipynb")
    outputs = notebook.run(0)
    expect(outputs.locator(".rowsweep-live")).to_have_count(len(STATES), timeout=60_000)
    return outputs


def kept(view: Locator, name: str, tmp_path: Path) -> None:
    """Keep the picture: the README's two in the repository where that is asked for, any other beside the test."""
    wanted = os.environ.get("ROWSWEEP_IMAGES")
    folder = Path(wanted) if wanted and name in README_PICTURES else tmp_path
    view.screenshot(path=folder / f"{name}.png")
    assert (folder / f"{name}.png").stat().st_size > 2_000


def colour_of(view: Locator, selector: str, what: str = "color") -> str:
    return str(view.locator(selector).first.evaluate(f"node => getComputedStyle(node).{what}"))


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_every_state_fits_and_takes_the_colours_of_the_theme(lab: Lab, page: Page, theme: str, tmp_path: Path) -> None:
    """N-103: nothing is wider than its cell, text is told from its ground, and each state says its word."""
    outputs = gallery(lab, page, theme)
    for state in STATES:
        view = outputs.locator(f".state-{state}")
        widths = view.evaluate("node => [node.scrollWidth, node.clientWidth]")
        assert widths[0] <= widths[1], state
        kept(view, f"run-{state}-{theme.rpartition(' ')[2].lower()}", tmp_path)
    is_dark = theme.endswith("Dark")
    light_text = sum(map(int, _rgb(colour_of(outputs, ".rs-value")))) > 3 * 128
    assert light_text is is_dark
    words = {state: outputs.locator(f".state-{state} [role=status]").first.inner_text() for state in STATES}
    assert [words[state].split()[-1] for state in ("running", "paused", "failed", "done")] == [
        "running", "paused", "failed", "done",
    ]  # fmt: skip
    fills = {colour_of(outputs, f".state-{state} .rs-fill", "backgroundColor") for state in STATES[:4]}
    assert len(fills) == 4


@pytest.mark.parametrize("zoom", [1.0, 1.5])
def test_nothing_moves_while_numbers_change(lab: Lab, page: Page, zoom: float) -> None:
    """The page around a view stays where it is, and so do the figures in it; at 150 % too."""
    page.set_viewport_size({"width": int(1100 / zoom), "height": int(1100 / zoom)})
    outputs = gallery(lab, page, "JupyterLab Light")
    views = [outputs.locator(f".state-{state}") for state in ("running", "paused", "unknown")]
    boxes = "node => [...node.querySelectorAll('th, .rs-chart, button')].map(part => [part.offsetLeft, part.offsetTop])"
    before = [(view.evaluate(boxes), view.evaluate("node => node.offsetHeight")) for view in views]
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1 }")
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-cell') }")
    expect(views[0].get_by_text("1,999,999")).to_be_visible(timeout=60_000)
    expect(views[2].get_by_text("1,999,999")).to_be_visible(timeout=60_000)
    assert [(view.evaluate(boxes), view.evaluate("node => node.offsetHeight")) for view in views] == before


def test_the_readme_shows_the_pictures_that_are_taken_here() -> None:
    """Taken anew by ROWSWEEP_IMAGES=docs/images."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in README_PICTURES:
        assert f"](docs/images/{name}.png)" in readme
        assert 5_000 < (ROOT / "docs" / "images" / f"{name}.png").stat().st_size < 60_000


def _rgb(text: str) -> list[str]:
    return text.removeprefix("rgba(").removeprefix("rgb(").rstrip(")").split(",")[:3]
