"""Run the command line in this process or as one of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rowsweep.cli.main import main
from rowsweep.clock import real_monotonic
from rowsweep.jobs.registry import reset_jobs
from rowsweep.jobs.tasks.registry import reset_tasks

SWEEPS = """
from __future__ import annotations

import rowsweep as rs

totals = rs.backfill("totals", rows=rs.Rows("items"), set={"total": "price * 2", "writes": "writes + 1"})


@rs.backfill("broken", rows=rs.Rows("items"), retry=rs.Retry(attempts=1))
def broken(batch: rs.Batch) -> None:
    raise ValueError("no such \\x1b[31mluck")


@rs.backfill("outside", rows=rs.Rows("items"), atomic=False, input=int)
def outside(batch: rs.Batch) -> None:
    assert batch.input == 7


@rs.job("mail", tenant="none")
def mail(ctx: rs.Ctx) -> None:
    return None
"""


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class CommandLine:
    """Commands over one database, in one working directory."""

    dsn: str
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> Answer:
        """Run a command in this process, which has declared nothing yet, as a command's own process would not have."""
        reset_jobs()
        reset_tasks()
        self.capsys.readouterr()
        try:
            main([*arguments, "--dsn", self.dsn])
        except SystemExit as left:
            said = self.capsys.readouterr()
            return Answer(code=left.code if isinstance(left.code, int) else 1, out=said.out, err=said.err)
        raise AssertionError("a command leaves with a code")

    @contextmanager
    def process(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start a command as a process of its own; it is killed where the test leaves it running."""
        process = subprocess.Popen(
            [sys.executable, "-m", "rowsweep.cli", *arguments, "--dsn", self.dsn],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()


def wait_until(is_so: Any, seconds: float = 30.0) -> Any:
    """Poll until the answer is true, and answer it."""
    deadline_at = real_monotonic() + seconds
    while real_monotonic() < deadline_at:
        answer = is_so()
        if answer:
            return answer
    raise AssertionError(f"not so within {seconds:g} s")


def fill(dsn: str, rows: int) -> None:
    """Make the table that the sweeps are about."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "create table items (id bigint primary key, price integer not null, total integer,"
            " writes integer not null default 0)"
        )
        connection.execute("insert into items (id, price) select n, n %% 100 from generate_series(1, %s) n", [rows])


def interrupt(process: subprocess.Popen[str]) -> None:
    """Press Ctrl-C."""
    process.send_signal(signal.SIGINT)


def write_app(folder: Path, text: str = SWEEPS, name: str = "app") -> None:
    """Write a module into the folder's `backfills/`."""
    (folder / "backfills").mkdir(exist_ok=True)
    (folder / "backfills" / f"{name}.py").write_text(text, encoding="utf-8")
