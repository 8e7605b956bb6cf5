"""A command line over a fresh schema, in a folder with an app."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowsweep.jobs.registry import reset_jobs
from rowsweep.jobs.tasks.registry import reset_tasks
from rowsweep.queue.postgres.driver import PostgresDriver
from tests.cli.command_line import CommandLine, write_app


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; what is imported from it, and declared, is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    reset_jobs()
    yield tmp_path
    reset_jobs()
    reset_tasks()
    for name in set(sys.modules) - known:
        if name.partition(".")[0] in ("backfills", "shop"):
            del sys.modules[name]


@pytest.fixture
def rowsweep(folder: Path, dsn: str, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line over a fresh schema with rowsweep's tables, in a folder that declares sweeps."""
    write_app(folder)
    commands = CommandLine(dsn, capsys)
    assert commands("schema", "install").code == 0
    return commands


@pytest.fixture
def driver(rowsweep: CommandLine, dsn: str) -> Iterator[PostgresDriver]:
    """The driver over the commands' database."""
    made = PostgresDriver(dsn)
    yield made
    made.close()
