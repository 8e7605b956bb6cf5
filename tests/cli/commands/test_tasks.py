"""`rowsweep tasks`, `rowsweep scheduler` and `rowsweep up`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

import rowsweep as rs
from tests.cli.command_line import CommandLine, wait_until, write_app

TASKS = """
from __future__ import annotations

import rowsweep as rs


@rs.job("mail", tenant="none", input=str)
def mail(ctx: rs.Ctx, text: str) -> None:
    return None


def broken_entries(at):
    raise LookupError("no such customer")


nightly = rs.task(cron="30 1 * * *", tz="Europe/London", enqueue=lambda at: [(mail, f"{at:%Y-%m-%d}"), (mail, "b")])
broken = rs.task("broken", cron="@hourly", tz="UTC", enqueue=broken_entries)
minutely = rs.task("minutely", cron="* * * * *", tz="Asia/Kathmandu", enqueue=lambda at: [(mail, "now")],
                   catch_up="run-all")
"""


@pytest.fixture
def tasks(rowsweep: CommandLine, folder: Path) -> CommandLine:
    """The command line in a folder that declares tasks."""
    write_app(folder, TASKS)
    return rowsweep


def jobs(dsn: str) -> list[dict[str, Any]]:
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        return connection.execute("select idempotency_key as key, input, state from x_jobs order by id").fetchall()


def set_watermark(dsn: str, task: str, at: datetime) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("insert into x_scheduler_state values (%s, %s, now())", [task, at])


def test_tasks_are_listed_with_their_next_run_in_their_zone_and_in_utc(tasks: CommandLine, dsn: str) -> None:
    """D-40, S-226: an unnamed one has its attribute's name."""
    set_watermark(dsn, "nightly", datetime(2025, 1, 31, 1, 30, tzinfo=UTC))
    set_watermark(dsn, "minutely", datetime(2025, 1, 31, 1, 29, 59, 999_000, tzinfo=UTC))
    answer = tasks("tasks", "ls")
    assert answer.code == 0
    title, broken, minutely, nightly, retention = answer.out.splitlines()
    assert "next (its zone)" in title
    assert "LookupError: no such customer" in broken
    assert "+0545" in minutely
    assert "never" in minutely
    assert nightly.endswith("mail, mail")
    assert "2025-01-31 01:30" in nightly
    assert retention.startswith("rowsweep-retention")


def test_tasks_are_listed_as_json(tasks: CommandLine) -> None:
    """N-106."""
    found = {entry["name"]: entry for entry in tasks("tasks", "ls", "--json").json}
    assert set(found) == {"broken", "minutely", "nightly", "rowsweep-retention"}
    assert (found["rowsweep-retention"]["cron"], found["rowsweep-retention"]["jobs"]) == (
        rs.RETENTION_CRON, ["rowsweep-retention"],
    )  # fmt: skip
    assert found["nightly"]["jobs"] == ["mail", "mail"]
    assert (found["nightly"]["tz"], found["nightly"]["last_fired_at"]) == ("Europe/London", None)
    assert datetime.fromisoformat(found["minutely"]["next_at"]) <= datetime.now(UTC) + timedelta(minutes=1)
    assert found["broken"]["error"] == "LookupError: no such customer"


def test_the_next_runs_of_a_task_ask_no_database(tasks: CommandLine) -> None:
    """D-40."""
    nowhere = CommandLine("postgresql://127.0.0.1:1/none", tasks.capsys)
    answer = nowhere("tasks", "next", "nightly", "--count", "400", "--json").json
    local = [datetime.fromisoformat(run["local"]) for run in answer["runs"]]
    assert len(local) == 400
    assert {at.utcoffset() for at in local} == {timedelta(0), timedelta(hours=1)}
    assert {f"{at:%H:%M}" for at in local} == {"01:30", "02:00"}
    lines = nowhere("tasks", "next", "minutely").out.splitlines()
    assert len(lines) == 6
    assert "+0545" in lines[1]


def test_an_unknown_task_is_refused_with_the_nearest(tasks: CommandLine) -> None:
    """S-233, N-106."""
    answer = tasks("tasks", "next", "nightl", "--json")
    assert (answer.code, json.loads(answer.err)["code"]) == (1, "X_JOB_UNKNOWN")
    assert "nightly" in answer.err


def test_a_task_fired_by_hand_enqueues_its_jobs_and_leaves_its_schedule(tasks: CommandLine, dsn: str) -> None:
    """S-232, S-055, D-40."""
    assert [one["job"] for one in tasks("tasks", "fire", "nightly", "--json").json] == ["mail", "mail"]
    assert [job["input"] for job in jobs(dsn)][1] == "b"
    assert not any("nightly" in job["key"] for job in jobs(dsn))
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select count(*) from x_scheduler_state").fetchone() == (0,)
    assert len(tasks("tasks", "fire", "nightly").out.splitlines()) == 3


def test_a_declaration_that_is_refused_says_where_it_stands(tasks: CommandLine, folder: Path) -> None:
    """S-222, S-403."""
    write_app(folder, TASKS.replace('"Asia/Kathmandu"', '"Kathmandu"'))
    answer = tasks("tasks", "ls")
    assert answer.code == 1
    assert "Asia/Kathmandu" in answer.err
    assert "backfills/app.py:18" in answer.err


def last_minutes(dsn: str) -> None:
    """Let the last scheduler have stopped three minutes ago."""
    set_watermark(dsn, "minutely", datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=3))


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def ready(port: int) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)
    except OSError:
        return 0, {}


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_scheduler_catches_up_and_drains_on_a_signal(tasks: CommandLine, dsn: str, sent: signal.Signals) -> None:
    """D-40, N-004, N-108, S-236, S-245."""
    last_minutes(dsn)
    port = free_port()
    with tasks.process("scheduler", "--json", "--ready-port", str(port)) as process:
        wait_until(lambda: len(jobs(dsn)) >= 3)
        assert ready(port) == (200, {"ready": True, "phase": "running", "in_flight": 0})
        with psycopg.connect(dsn) as connection:
            row = connection.execute("select holder from x_scheduler_leader").fetchone()
            assert row is not None
            assert f":{process.pid}:" in row[0]
        process.send_signal(sent)
        assert process.wait(60) == 0
        log = process.stderr.read() if process.stderr is not None else ""
    assert [json.loads(line)["event"] for line in log.splitlines()][-1] == "jobs.scheduler.draining"
    assert {job["state"] for job in jobs(dsn)} == {"ready"}
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select count(*) from x_scheduler_leader").fetchone() == (0,)


def test_up_fires_and_works_in_one_process_and_drains_both(tasks: CommandLine, dsn: str) -> None:
    """D-40, N-004, S-266."""
    last_minutes(dsn)
    with tasks.process("up", "--json") as process:
        wait_until(lambda: [job["state"] for job in jobs(dsn)].count("done") >= 3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        log = process.stderr.read() if process.stderr is not None else ""
    events = [json.loads(line)["event"] for line in log.splitlines()]
    assert {"jobs.worker.started", "jobs.scheduler.started", "jobs.scheduler.dispatched", "jobs.run.finished"} <= {
        *events
    }
    assert {"jobs.worker.draining", "jobs.scheduler.draining", "jobs.worker.stopped"} <= {*events}


@pytest.mark.slow
def test_up_purges_its_own_tables_on_the_hour(tasks: CommandLine, dsn: str) -> None:
    """S-218, D-39: an hour that came while it was down; the ledger shows the purge as any sweep."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            """insert into x_jobs (id, name, state, input, idempotency_key, run_id, max_attempts, run_at, updated_at)
               select gen_random_uuid(), 'old', 'done', 'null', n::text, gen_random_uuid(), 1, now(),
                      now() - case when n <= 3 then 8 else 1 end * interval '1 day'
                 from generate_series(1, 5) n"""
        )
        connection.execute(
            """insert into x_scheduler_state (task, watermark, updated_at)
               values ('rowsweep-retention', now() - interval '2 hours', now())"""
        )
        with tasks.process("up", "--json") as process:
            purged = "select status, rows, kind from x_backfills where name = 'rowsweep-retention'"
            wait_until(lambda: connection.execute(purged).fetchall() == [("done", 3, "purge")])
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        assert connection.execute("select count(*) from x_jobs where name = 'old'").fetchone() == (2,)


def test_up_without_a_database_starts_the_embedded_one_with_its_tables(folder: Path) -> None:
    """D-40, N-110."""
    write_app(folder, TASKS)
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    command = [sys.executable, "-m", "rowsweep.cli", "up", "--json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        seen: list[str] = []
        for line in process.stderr:
            seen.append(line)
            if '"jobs.scheduler.dispatched"' in line or '"jobs.scheduler.started"' in line:
                process.send_signal(signal.SIGTERM)
                break
        seen += process.stderr.readlines()
        assert process.wait(30) == 0, "".join(seen)
    assert (folder / ".rowsweep" / "pg").is_dir()
    assert not any("SCHEMA" in line for line in seen)


SLOW = """
from __future__ import annotations

import pathlib
import time

import rowsweep as rs


@rs.job("slow", tenant="none")
def slow(ctx: rs.Ctx) -> None:
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
"""


@pytest.mark.slow
def test_readiness_is_refused_while_work_in_flight_is_waited_for(rowsweep: CommandLine, folder: Path, dsn: str) -> None:
    """N-108, D-32, S-423."""
    write_app(folder, SLOW + 'minutely = rs.task(cron="* * * * *", tz="UTC", enqueue=lambda at: [(slow, None)])\n')
    assert rowsweep("tasks", "fire", "minutely").code == 0
    port = free_port()
    with rowsweep.process("up", "--ready-port", str(port)) as process:
        wait_until(lambda: [job["state"] for job in jobs(dsn)] == ["running"])
        assert ready(port)[0] == 200
        with pytest.raises(urllib.error.HTTPError) as unknown:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
        assert (unknown.value.code, unknown.value.read()) == (404, b"")
        unknown.value.close()
        taken = rowsweep("scheduler", "--ready-port", str(port), "--json")
        assert (taken.code, json.loads(taken.err.splitlines()[-1])["code"]) == (1, "X_OPTION_INVALID")
        process.send_signal(signal.SIGTERM)
        status, readiness = wait_until(lambda: (found := ready(port))[0] == 503 and found)
        assert (status, readiness["ready"]) == (503, False)
        (folder / "go").touch()
        assert process.wait(60) == 0
    assert [job["state"] for job in jobs(dsn)] == ["done"]
