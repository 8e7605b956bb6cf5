"""The built wheel, installed with its extras into an environment that has nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
EXTRAS = "embedded,notebook,webhook"

READ_SQL = """
from importlib import resources
folder = resources.files("rowsweep.queue.postgres")
print((folder / "migrations" / "0001_base.sql").read_text(encoding="utf-8"))
"""

ASK_EMBEDDED = """
import psycopg
from rowsweep import embedded
server = embedded.start()
with psycopg.connect(server.dsn) as connection:
    print(connection.execute("show server_version").fetchone()[0])
server.leave()
"""

pytestmark = [pytest.mark.slow, pytest.mark.acceptance, pytest.mark.timeout(900)]


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(part) for part in command], check=False, capture_output=True, text=True, cwd=cwd, env=environment
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment with nothing but the wheel, its extras and what they need."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=True)
    pins = ROOT / "constraints.txt"
    run(folder / "bin" / "python", "-m", "pip", "install", "-c", pins, f"{wheel}[{EXTRAS}]", cwd=folder)
    return folder / "bin"


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    source = ROOT / "src"
    paths = (path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    files = {path.relative_to(source).as_posix() for path in paths}
    assert "rowsweep/queue/postgres/migrations/0001_base.sql" in files
    assert files <= set(zipfile.ZipFile(wheel).namelist())


def test_an_installed_wheel_reads_its_migrations(clean: Path, tmp_path: Path) -> None:
    assert "create table" in run(clean / "python", "-I", "-c", READ_SQL, cwd=tmp_path).lower()


def test_an_installed_wheel_has_its_command(clean: Path, tmp_path: Path) -> None:
    said = run(clean / "rowsweep", "--help", cwd=tmp_path)
    assert "demo" in said


def test_an_installed_wheel_starts_the_embedded_server(clean: Path, tmp_path: Path) -> None:
    """N-110."""
    assert run(clean / "python", "-I", "-c", ASK_EMBEDDED, cwd=tmp_path).startswith("18.")
    assert (tmp_path / ".rowsweep" / "pg" / "PG_VERSION").exists()
