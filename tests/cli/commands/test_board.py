"""`rowsweep board`: everything at a glance."""

from __future__ import annotations

import pytest

from tests.cli.command_line import CommandLine, fill, interrupt, write_app

TASK = """
import rowsweep as rs

@rs.job("mail", tenant="none")
def mail(ctx: rs.Ctx) -> None: ...

nightly = rs.task("nightly", cron="0 3 * * *", tz="UTC", enqueue=lambda at: [(mail, None)])
"""


@pytest.fixture
def shop(rowsweep: CommandLine, dsn: str) -> CommandLine:
    fill(dsn, 100)
    assert rowsweep("run", "totals").code == 0
    return rowsweep


def test_it_shows_sweeps_jobs_workers_and_schedules_once(shop: CommandLine, folder: object) -> None:
    """D-40."""
    write_app(folder, TASK)  # type: ignore[arg-type]
    said = shop("board", "--once").out
    assert "totals  done 100 %" in said
    assert "No worker lives." in said
    assert "nightly" in said
    document = shop("board", "--json").json
    assert document["runs"][0]["name"] == "totals"
    assert document["schedules"][0]["name"] == "nightly"


def test_what_cannot_be_imported_keeps_nobody_from_looking(shop: CommandLine, folder: object) -> None:
    write_app(folder, "raise ImportError('no such thing')")  # type: ignore[arg-type]
    answer = shop("board", "--once")
    assert answer.code == 0
    assert "Schedules are left out" in answer.err
    assert "totals" in answer.out


def test_a_pipe_gets_a_line_now_and_then_until_ctrl_c(shop: CommandLine) -> None:
    """N-106."""
    with shop.process("board") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        interrupt(process)
        assert process.wait(60) == 130
    assert "sweeps at work 0" in line
    assert "workers 0" in line
