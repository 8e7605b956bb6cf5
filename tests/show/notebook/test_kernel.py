"""Runs in a real kernel, executed from top to bottom as a notebook is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

ROOT = Path(__file__).parent.parent.parent.parent
WIDGET = "application/vnd.jupyter.widget-view+json"
SETUP = """
import rowsweep as rs
app = rs.connect()
rs.install()
with rs.transaction() as tx:
    tx.execute("create table orders (id bigint primary key, price int, total int)")
    tx.execute("insert into orders select i, i % 9, null from generate_series(1, 4000) i")
"""
DECLARE = """
totals = rs.backfill("totals", rows=rs.Rows("orders"), set={"total": "price * 2"},
                     rate="2000/s", batch_rows=200, adapt=False)
"""
SETUP += DECLARE


def executed(cells: Sequence[str], monkeypatch: pytest.MonkeyPatch, dsn: str) -> list[list[dict[str, Any]]]:
    """Execute the cells in a fresh kernel and answer each one's outputs."""
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("DATABASE_URL", dsn)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    made: Any = nbformat.v4
    notebook = made.new_notebook(cells=[made.new_code_cell(cell) for cell in cells])
    asyncio.run(NotebookClient(notebook, timeout=120, kernel_name="python3").async_execute())
    return [[dict(output) for output in cell.outputs] for cell in notebook.cells]


def datas(outputs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [output["data"] for output in outputs if "data" in output]


@pytest.fixture(autouse=True)
def _quiet_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setitem(os.environ, "JUPYTER_RUNTIME_DIR", str(tmp_path))


def test_a_notebook_keeps_the_last_state_of_every_run(monkeypatch: pytest.MonkeyPatch, dsn: str) -> None:
    """N-102, N-103: live in the kernel, static in what is saved, asked for no longer when it ended."""
    cells = [
        SETUP,
        "run = totals.launch()\nrun",
        "run.pause('lunch'); run.resume(); run.wait()",
        "run",
        """
import threading, time
while app.poller().is_asking: time.sleep(0.05)
""",
        "rs.attach('totals')",
    ]
    outputs = executed(cells, monkeypatch, dsn)
    picture, widgets = datas(outputs[1])
    assert picture["text/plain"].startswith("totals: done  100 %  4,000 rows")
    assert "✓" in picture["text/html"]
    assert WIDGET in widgets
    assert [WIDGET in data for data in datas(outputs[3]) + datas(outputs[5])] == [False, False]
    assert all("text/plain" in data for cell in outputs for data in datas(cell))


def test_a_run_is_shown_beside_an_event_loop_in_a_thread_and_after_a_reload(
    monkeypatch: pytest.MonkeyPatch, dsn: str
) -> None:
    """N-103: wherever a cell's code runs."""
    cells = [
        SETUP + "%load_ext autoreload\n%autoreload 2",
        "import asyncio\nrun = totals.launch()\nawait asyncio.sleep(0.01)\nrun",
        """
import threading
from IPython.display import display
thread = threading.Thread(target=display, args=(run,)); thread.start(); thread.join()
""",
        """
import importlib
import rowsweep.show.notebook.live, rowsweep.show.notebook.panel
importlib.reload(rowsweep.show.notebook.panel); importlib.reload(rowsweep.show.notebook.live)
run
""",
        DECLARE + "again = totals.launch()\nassert again.run_id == run.run_id and again.attached\nagain",
        "run.wait()",
    ]
    outputs = executed(cells, monkeypatch, dsn)
    for cell in (1, 2, 3, 4):
        picture, widgets = datas(outputs[cell])
        assert picture["text/plain"].startswith("totals: done"), cell
        assert WIDGET in widgets


def test_without_ipywidgets_the_cell_says_what_to_install_and_still_moves(
    monkeypatch: pytest.MonkeyPatch, dsn: str
) -> None:
    """N-001, N-103."""
    cells = ["import sys; sys.modules['ipywidgets'] = None", SETUP, "run = totals.launch()\nrun", "run.wait()"]
    outputs = executed(cells, monkeypatch, dsn)
    (picture,) = datas(outputs[2])
    assert picture["text/plain"].startswith("totals: done")
    assert "rowsweep[notebook]" in picture["text/html"]
