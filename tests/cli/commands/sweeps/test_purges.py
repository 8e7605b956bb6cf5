"""Purges on the command line: listed, previewed, launched, run and steered like any sweep."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rowsweep.cli.stopping import Signals
from rowsweep.jobs.registry import find_job
from rowsweep.jobs.tasks.registry import registered_tasks
from rowsweep.scheduler.scheduler import Scheduler
from rowsweep.worker.worker import Worker
from tests.cli.command_line import CommandLine, write_app

APP = """
import rowsweep as rs

def targets():
    return [rs.older_than("events", "created_at", days=90)]

retention = rs.purge("retention", targets=targets, confirm=0.5)
strict = rs.purge("strict", targets=targets)
"""


@pytest.fixture
def events(rowsweep: CommandLine, dsn: str) -> CommandLine:
    """The command line over a table of which two fifths are old."""
    write_app(Path.cwd(), APP)
    with psycopg.connect(dsn) as connection:
        connection.execute("create table events (id int primary key, created_at timestamptz not null)")
        connection.execute(
            "insert into events select i, now() - (case when i <= 40 then 100 else 1 end) * interval '1 day' "
            "from generate_series(1, 100) i"
        )
    return rowsweep


def left(dsn: str) -> int:
    """Count the events."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select count(*) from events").fetchone()
    assert row is not None
    return int(row[0])


def test_a_purge_is_previewed_then_run(events: CommandLine, dsn: str) -> None:
    """D-40, N-091: the counts first; then it is in the ledger like any sweep, and may repeat."""
    (line,) = events("sweeps", "preview", "retention", "--json").json
    assert (line["target"], line["rows"], line["share"]) == ("events", 40, 0.4)
    shown = events("sweeps", "preview", "retention")
    assert shown.out.splitlines()[0].split()[:2] == ["target", "rows"]
    assert left(dsn) == 100
    assert events("run", "retention").code == 0
    assert left(dsn) == 60
    (row,) = events("ledger", "--kind", "purge", "--json").json
    assert (row["name"], row["status"], row["rows"]) == ("retention", "done", 40)
    assert events("run", "retention").code == 0
    assert len(events("ledger", "--kind", "purge", "--json").json) == 2


def test_purges_are_listed_and_steered_like_any_sweep(events: CommandLine, dsn: str) -> None:
    """D-40."""
    states = {entry["name"]: (entry["kind"], entry["state"]) for entry in events("sweeps", "ls", "--json").json}
    assert states == {"retention": ("purge", "pending"), "strict": ("purge", "pending")}
    assert events("sweeps", "launch", "retention").code == 0
    assert events("sweeps", "pause", "retention", "--json").json["status"] == "paused"
    assert events("sweeps", "show", "retention", "--json").json["kind"] == "purge"
    assert events("sweeps", "resume", "retention", "--json").json["status"] == "running"
    assert events("sweeps", "cancel", "retention", "--json").json["status"] == "cancelled"
    assert left(dsn) == 100


def test_an_implausible_purge_ends_the_command_with_what_to_do(events: CommandLine, dsn: str) -> None:
    """D-8, N-106."""
    refused = events("run", "strict", "--json")
    assert refused.code == 1
    assert "X_PURGE_IMPLAUSIBLE" in json.loads(refused.err.splitlines()[-1])["cause"]
    assert left(dsn) == 100


@pytest.mark.slow
def test_the_doctor_names_a_purge_that_is_refused_and_what_it_advises_lets_it_through(
    events: CommandLine, dsn: str
) -> None:
    """D-8, N-105: a schedule fires it again and again; what is left then is well again."""
    for _ in range(2):
        assert events("run", "strict").code == 1
    found = {finding["name"]: finding for finding in events("doctor", "--json").json["findings"]}
    assert found["purges"]["level"] == "warn"
    assert "strict (2 times, last at" in found["purges"]["says"]
    commands = [shlex.split(command)[1:] for command in re.findall(r"rowsweep [^,;]+", found["purges"]["fix"])]
    assert [command[:2] for command in commands] == [["sweeps", "preview"], ["sweeps", "launch"], ["jobs", "rm"]]
    for command in commands:
        assert events(*command, *(["--yes"] if "rm" in command else [])).code == 0
    assert events("run", "strict").code == 0  # works the launched one, as a fleet would
    assert left(dsn) == 60
    found = {finding["name"]: finding for finding in events("doctor", "--json").json["findings"]}
    assert (found["purges"]["level"], found["dead"]["level"]) == ("ok", "ok")


@pytest.mark.parametrize("command", ["worker", "scheduler", "up"])
def test_a_command_that_serves_declares_retention(
    events: CommandLine, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-218: the purge of the system's own tables and its hourly task, before anything is started."""
    seen: list[tuple[str, list[str], list[str]]] = []

    def look(self: Any) -> None:
        retention = find_job("rowsweep-retention")
        assert retention is not None
        queues = [] if isinstance(self, Scheduler) else list(self._options.queues)
        seen.append((retention.kind, [task.name for task in registered_tasks()], queues))

    def leave(self: Any, seconds: float | None = None) -> bool:
        self.is_terminated = True
        return True

    monkeypatch.setattr(Worker, "start", look)
    monkeypatch.setattr(Scheduler, "start", look)
    monkeypatch.setattr(Signals, "wait", leave)
    assert events(command).code == 0
    assert seen
    assert all((kind, tasks) == ("purge", ["rowsweep-retention"]) for kind, tasks, _ in seen)
    if command != "scheduler":
        assert seen[0][2] == ["default"]


def test_the_shipped_purge_is_looked_at_and_run_by_its_name(events: CommandLine) -> None:
    """S-218, D-39: also where no scheduler fires it; it is no sweep of the application's."""
    assert "rowsweep-retention" not in events("sweeps", "ls").out
    counted = {
        entry["target"]: entry["rows"] for entry in events("sweeps", "preview", "rowsweep-retention", "--json").json
    }
    assert set(counted.values()) == {0}
    assert events("run", "rowsweep-retention").code == 0
    assert events("ledger", "--name", "rowsweep-retention", "--json").json[0]["status"] == "done"
    assert events("jobs", "names", "--json").json["undeclared"] == []
