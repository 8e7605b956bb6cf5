"""notebooks/06_webhook.ipynb, executed from top to bottom in a real kernel on the embedded server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

ROOT = Path(__file__).parent.parent.parent


def said(cell: Any) -> list[str]:
    """Answer what a cell printed and showed, as text."""
    outputs = cell.get("outputs", [])
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
    return "".join(texts).splitlines()


def test_the_notebook_does_what_it_shows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """N-014, S-356, S-374, D-33: executed anew it says, cell by cell, what is saved in it."""
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    read: Any = nbformat.read
    saved = read(ROOT / "notebooks" / "06_webhook.ipynb", as_version=4)
    executed = read(ROOT / "notebooks" / "06_webhook.ipynb", as_version=4)
    client = NotebookClient(
        executed, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    asyncio.run(client.async_execute())
    assert [said(cell) for cell in executed.cells] == [said(cell) for cell in saved.cells]
    lines = [line for cell in executed.cells for line in said(cell)]
    assert "committed: [1, 2, 4, 5, 7, 8]" in lines
    assert "told:      [1, 2, 4, 5, 7, 8]" in lines
    assert "{'order': 100}" in lines
