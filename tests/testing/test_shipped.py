"""The README's test, run by pytest in a project of its own with the fixtures that ship."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.slow
def test_the_readmes_test_passes_and_fails_where_the_sweep_is_wrong(tmp_path: Path) -> None:
    """N-115, N-116: fixtures by name, from a plain folder."""
    (block,) = re.findall(
        r"```python\n# file: test_points\.py\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL
    )
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["rowsweep.testing.fixtures"]\n', encoding="utf-8")
    assert "4 passed" in _pytest(tmp_path, block)
    assert "4 failed" in _pytest(tmp_path, block.replace("points + 5", "points + 6"))


def _pytest(folder: Path, text: str) -> str:
    (folder / "test_points.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(
        command, cwd=folder, check=False, capture_output=True, text=True, timeout=100, env=dict(os.environ)
    )
    return done.stdout
