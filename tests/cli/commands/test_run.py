"""`rowsweep run` and `rowsweep worker` as processes of their own."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.command_line import CommandLine, fill, interrupt, wait_until

ROWS = 6_000
SLOWLY = ("run", "totals", "--rate", "2000/s", "--batch-rows", "100")


@pytest.fixture
def items(rowsweep: CommandLine, dsn: str) -> CommandLine:
    fill(dsn, ROWS)
    return rowsweep


def newest(items: CommandLine) -> dict[str, Any]:
    return next(iter(items("ledger", "--limit", "1", "--json").json), {})


def has_begun(items: CommandLine) -> bool:
    return bool(newest(items).get("rows"))


def written(dsn: str) -> tuple[int, ...] | None:
    """How many rows there are, and how many were written exactly once."""
    with psycopg.connect(dsn) as connection:
        return connection.execute("select count(*), count(*) filter (where writes = 1) from items").fetchone()


def test_a_run_in_a_pipe_ends_with_its_last_line(items: CommandLine, dsn: str) -> None:
    """D-40."""
    answer = items("run", "totals")
    assert answer.code == 0
    assert re.search(r"^totals: done  100 %  6,000 rows  ", answer.out.splitlines()[-1])
    assert "\x1b" not in answer.out
    assert written(dsn) == (ROWS, ROWS)


def test_a_run_as_json_is_one_document_and_its_progress_is_elsewhere(items: CommandLine) -> None:
    """N-106."""
    answer = items("run", "totals", "--json")
    assert answer.json["status"] == "done"
    assert len(answer.out.splitlines()) == 1
    assert "totals: done" in answer.err


def test_a_run_that_fails_is_refused_with_its_error_and_how_to_go_on(items: CommandLine) -> None:
    """N-078, N-104."""
    answer = items("run", "broken")
    assert answer.code == 1
    assert "no such \\x1b[31mluck" in answer.err
    assert "\x1b" not in answer.err + answer.out
    assert "rowsweep sweeps resume" in answer.err
    assert "code: X_SWEEP_FAILED" in answer.err


def test_an_unknown_sweep_is_refused_with_the_nearest(items: CommandLine) -> None:
    answer = items("run", "total", "--json")
    assert (answer.code, json.loads(answer.err)["code"]) == (1, "X_JOB_UNKNOWN")
    assert "totals" in json.loads(answer.err)["cause"]


def test_what_is_applied_is_run_again_only_by_force(items: CommandLine) -> None:
    """D-4."""
    assert items("run", "totals").code == 0
    assert json.loads(items("run", "totals", "--json").err)["code"] == "X_BACKFILL_APPLIED"
    assert items("run", "totals", "--force").code == 0


def test_an_input_is_handed_on(items: CommandLine) -> None:
    assert items("run", "outside", "--input", "7", "--json").json["input"] == 7


def test_only_the_named_sweep_is_worked(items: CommandLine) -> None:
    """A run is here for one sweep: what else waits on its queue is the fleet's."""
    items("sweeps", "launch", "broken")
    assert items("run", "totals").code == 0
    assert items("sweeps", "show", "broken", "--json").json["words"] == "waiting for a worker"


def test_ctrl_c_pauses_and_the_next_run_goes_on(items: CommandLine, dsn: str) -> None:
    """D-40, N-106."""
    with items.process(*SLOWLY) as process:
        wait_until(lambda: has_begun(items))
        interrupt(process)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "paused. Go on here: rowsweep run totals" in err
    paused = newest(items)
    assert paused["words"] == "paused"
    assert 0 < paused["rows"] < ROWS
    with items.process("run", "totals", "--rate", "9/s") as process:
        wait_until(lambda: newest(items)["rows"] > paused["rows"])
        interrupt(process)
        out, err = process.communicate(timeout=30)
    assert f"Going on with run {paused['run_id']}: paused, {paused['rows']:,} rows done." in out
    assert "stay as that run was launched with" in err


@pytest.mark.slow
def test_a_sharded_run_is_worked_paused_and_shown_as_one(items: CommandLine, folder: Path, dsn: str) -> None:
    """N-088, N-079: all shards in this process; Ctrl-C pauses every one, and a line tells of each."""
    (folder / "backfills" / "sharded.py").write_text(
        "import rowsweep as rs\n\n"
        'sharded = rs.backfill("sharded", rows=rs.Rows("items"), set={"writes": "writes + 1"}, shards=3)\n'
    )
    with items.process("run", "sharded", "--rate", "3000/s", "--batch-rows", "100") as process:
        wait_until(lambda: has_begun(items))
        interrupt(process)
        process.communicate(timeout=30)
    assert process.returncode == 130
    assert newest(items)["words"] == "paused"
    items("sweeps", "tune", "sharded", "--rate", "none")
    answer = items("run", "sharded")
    assert re.search(r"sharded: done  100 %  6,000 rows .* 3 shards$", answer.out.splitlines()[-1])
    assert written(dsn) == (ROWS, ROWS)
    shown = items("sweeps", "show", "sharded").out
    assert re.search(r"^shard 3  +[\d,]+ rows  100 %  done  behind \(\d+\)", shown, re.MULTILINE)
    assert [shard["status"] for shard in newest(items)["shards"]] == ["done"] * 3


def test_sigterm_hands_the_run_to_the_next_worker(items: CommandLine, dsn: str) -> None:
    """N-004, N-042."""
    with items.process(*SLOWLY) as process:
        wait_until(lambda: has_begun(items))
        process.terminate()
        _, err = process.communicate(timeout=30)
    assert process.returncode == 143
    assert "left to the next worker" in err
    left = newest(items)
    assert (left["status"], left["words"]) == ("running", "waiting for a worker")


@pytest.mark.slow
def test_a_second_ctrl_c_stops_at_once(items: CommandLine, folder: Path, dsn: str) -> None:
    """N-004."""
    (folder / "backfills" / "stuck.py").write_text(
        'import pathlib, time\nimport rowsweep as rs\n\n\n@rs.backfill("stuck", rows=rs.Rows("items"))\n'
        'def stuck(batch: rs.Batch) -> None:\n    pathlib.Path("begun").touch()\n    time.sleep(60)\n'
    )
    with items.process("run", "stuck") as process:
        wait_until((folder / "begun").exists)
        interrupt(process)
        wait_until(lambda: newest(items)["words"] == "pausing")
        interrupt(process)
        assert process.wait(timeout=5) == 130


@pytest.mark.slow
def test_the_lease_of_a_killed_worker_is_waited_for_and_said_so(items: CommandLine, dsn: str) -> None:
    with items.process(*SLOWLY, "--visibility", "3s") as process:
        wait_until(lambda: has_begun(items))
        process.kill()
        process.communicate()
    answer = items("run", "totals", "--visibility", "3s")
    assert answer.code == 0
    assert f":{process.pid}; if that is gone, its lease lapses in " in answer.out
    assert written(dsn) == (ROWS, ROWS)


def test_a_worker_works_what_is_launched_until_it_is_told_to_stop(items: CommandLine, dsn: str) -> None:
    """N-004, S-424."""
    with items.process("worker", "--concurrency", "2", "--drain", "10s") as process:
        launched = items("sweeps", "launch", "totals", "--wait")
        assert launched.code == 0
        process.terminate()
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out == ""
    assert "info jobs.worker.started" in err
    assert "info jobs.worker.draining" in err
    assert "info jobs.worker.stopped" in err
    assert written(dsn) == (ROWS, ROWS)


def test_launching_without_waiting_leaves_the_work_to_workers(items: CommandLine) -> None:
    launched = items("sweeps", "launch", "totals")
    assert "launched as run" in launched.out
    assert newest(items)["rows"] == 0


def test_waiting_for_a_run_that_fails_leaves_with_one(items: CommandLine) -> None:
    with items.process("worker"):
        assert items("sweeps", "launch", "broken", "--wait").code == 1


def test_waiting_where_no_worker_declares_the_sweep_says_so_at_once(items: CommandLine, dsn: str) -> None:
    """N-004: it waits for one all the same."""
    with items.process("sweeps", "launch", "totals", "--wait") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "No live worker declares totals: it waits for one (rowsweep worker).\n"
    assert written(dsn) == (ROWS, 0)


@pytest.mark.parametrize("flags", [["--concurrency", "none"], ["--concurrency", "a=0"]])
def test_a_concurrency_that_cannot_be_read_is_wrong_usage(items: CommandLine, flags: list[str]) -> None:
    """N-106."""
    assert items("worker", *flags).code == 2


@pytest.mark.slow
def test_a_terminal_gets_one_view_that_is_redrawn(items: CommandLine, dsn: str) -> None:
    """N-104; NO_COLOR leaves the cursor's movements and takes the colours."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "rowsweep.cli", "run", "totals", "--rate", "6000/s", "--dsn", dsn],
        stdin=follower,
        stdout=follower,
        stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "60", "LINES": "20", "NO_COLOR": "1"},
    )
    os.close(follower)
    shown = b""
    try:
        while chunk := os.read(leader, 65_536):
            shown += chunk
    except OSError:  # Linux's way of saying that the other side is closed
        pass
    os.close(leader)
    process.communicate()
    text = shown.decode()
    assert process.returncode == 0
    assert text.count("Ctrl-C pauses it") > 1
    assert "\x1b[?25h" in text[-40:]
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", text)
    assert "100 %" in text


def test_the_signals_of_the_process_are_given_back(items: CommandLine) -> None:
    """N-004."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    items("run", "totals")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
