"""The notebooks: each is executed from top to bottom, and what is kept in the repository is what it answers."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
FACTS = {
    "01_quick_start": [
        r"'rows': 1000000", r"is live already \(running", r"'order-bands': stalled",
        r"1,000,000 rows, 1,000,000 of them right, each written at least 2 and at most 2 times",
    ],
    "02_exports": [
        r"'rows': 300000", r"_SUCCESS +0 bytes", r"north +75,000 +1,873,500.00",
        "holds '_manifest.json' of 'sales-archive'",
    ],
    "03_retention": [
        r"'removed': {'events': \d+, 'sessions': 5\d\d}", "more than 20% of it; nothing was deleted",
        "hourly-retention", "retention → done",
    ],
    "04_a_fleet": [
        r"'bob' is no address", r"done +┆ 200", r"exit codes: \[0, 0\]", "246 jobs of 246", "rowsweep worker",
        "200,000 rows in 2 shards", "200,000 rows computed in other processes",
    ],
    "05_when_things_go_wrong": [
        "X_SWEEP_FAILED", r"keys after \(29300\) up to \(30300\)", r"\(60000, 1, 1\)", "X_BACKFILL_APPLIED",
        "waiting for: lock timeout", "thirds: cancelled", "3 rows done, 0 left",
        r"60000 rows; held by: \['stock_taking'\]", "waiting for: 1 open transaction that wrote to public.orders",
        r"'rows': 1, 'proved': True", "complete: True · rows that match: 0",
    ],
}  # fmt: skip
MACHINE = re.compile(r"/(tmp|home|root|work|Users|var)/|site-packages/rowsweep")


def said(notebook: Any) -> str:
    """Answer all text that a notebook's cells answered."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    texts = (output.get("text") or output.get("data", {}).get("text/plain") or "" for output in outputs)
    return "\n".join("".join(text) for text in texts)


def kept(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_every_notebook_is_executed_by_a_test() -> None:
    """The webhook's has a test of its own, beside this one."""
    assert {path.stem for path in NOTEBOOKS} == {*FACTS, "06_webhook"}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem in FACTS], ids=lambda path: path.stem)
def test_it_runs_from_top_to_bottom(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-103, N-109: in an empty folder, without a database of the caller's, with the real numbers it speaks of."""
    import nbformat
    from nbclient import NotebookClient

    read: Any = nbformat.read
    notebook = read(path, as_version=4)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    (tmp_path / "work").mkdir()
    where = {"metadata": {"path": str(tmp_path / "work")}}
    client = NotebookClient(notebook, timeout=240, kernel_name="python3", resources=where)
    asyncio.run(client.async_execute())
    answered = said(notebook)
    for fact in FACTS[path.stem]:
        assert re.search(fact, answered), f"{fact}\n{answered}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_kept_is_whole_and_tells_nothing_of_a_machine(path: Path) -> None:
    """N-103: readable on GitHub, every view with its text, and executed in one go."""
    notebook = kept(path)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert all("text/plain" in output["data"] for output in outputs if "data" in output)
    assert not MACHINE.search(json.dumps(notebook, ensure_ascii=False))
    for fact in FACTS.get(path.stem, ()):
        assert re.search(fact, said(notebook)), fact
