"""`rowsweep doctor`: findings for people and scripts, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from rowsweep.cli.main import main
from rowsweep.queue.postgres.driver import PostgresDriver
from tests.cli.command_line import CommandLine
from tests.queue.world import worker_info


def test_findings_leave_with_one_and_say_what_to_do(rowsweep: CommandLine) -> None:
    """N-105, N-106: nobody works and nobody leads."""
    answer = rowsweep("doctor")
    assert answer.code == 1
    assert "warn  workers      no worker is alive: nothing is run." in answer.out
    assert "fix: rowsweep worker, or rowsweep up" in answer.out
    assert answer.out.splitlines()[-1].endswith(": 0 failing, 2 to look after.")
    assert answer.err == ""


def test_a_queue_that_is_well_leaves_with_zero(rowsweep: CommandLine, dsn: str) -> None:
    """N-106."""
    driver = PostgresDriver(dsn)
    stores = driver.stores()
    assert stores.workers is not None
    assert stores.leader is not None
    stores.workers.look(queues=[], names=[], announce=worker_info("w1"))
    stores.leader.acquire("scheduler", "box:1:a", lease_seconds=30)
    driver.close()
    answer = rowsweep("doctor", "--json")
    assert answer.code == 0
    assert answer.json["is_well"] is True
    assert {finding["level"] for finding in answer.json["findings"]} == {"ok"}
    assert set(answer.json["findings"][0]) == {"name", "level", "says", "fix"}


def test_a_file_that_does_not_import_keeps_nobody_from_looking(rowsweep: CommandLine, folder: Path) -> None:
    """N-105: it loads no application."""
    (folder / "backfills").mkdir(exist_ok=True)
    (folder / "backfills" / "broken.py").write_text("raise SystemExit(9)\n")
    assert rowsweep("doctor").code == 1


def test_missing_tables_are_a_finding_too(folder: Path, dsn: str, capsys: pytest.CaptureFixture[str]) -> None:
    """N-105, N-106."""
    with pytest.raises(SystemExit) as left:
        main(["doctor", "--dsn", dsn])
    assert left.value.code == 1
    assert "fix: rowsweep schema install" in capsys.readouterr().out


def test_a_server_that_cannot_be_reached_is_a_finding(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """N-105, N-109: on stdout, as all findings, without the password."""
    with pytest.raises(SystemExit) as left:
        main(["doctor", "--json", "--dsn", "postgresql://me:secret@127.0.0.1:1/shop"])
    said = capsys.readouterr()
    assert left.value.code == 1
    (finding,) = json.loads(said.out)["findings"]
    assert (finding["name"], finding["level"]) == ("connection", "fail")
    assert "secret" not in said.out + said.err


def test_what_values_say_cannot_steer_a_terminal(rowsweep: CommandLine, dsn: str) -> None:
    """N-104."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("insert into x_job_pauses (queue, paused_at, reason) values ('q', now(), E'\\x1b[2Jgone')")
    answer = rowsweep("doctor")
    assert "\x1b" not in answer.out
    assert "the queue 'q'" in answer.out
