"""Real processes over one schema: start, kill, stop and wake them, and read what they logged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from tests.acceptance.scene import told

Found = TypeVar("Found")

slow = pytest.mark.slow
FORMS = [pytest.param("by-set"), pytest.param("by-sql", marks=slow), pytest.param("by-frame", marks=slow)]
"""The three ways to write a batch, the first of them for every test run."""

APPLICATION = Path(__file__).with_name("application.py")
PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.002

TABLES = """
create table counted (id bigint primary key, n integer not null default 0);
create table calls (key text not null, first bigint not null, last bigint not null, rows integer not null);
create table deafness (seconds double precision not null);
create table pace (least double precision not null, most double precision not null);
create sequence tries;
insert into deafness values (0);
insert into pace values (0, 0);
"""

# A batch is held open for a moment behind its writes, so that a random moment falls into one on any machine. A
# sequence is not rolled back: it counts the batches that were begun, the table only those that were committed.
SLOW = """
create function slow() returns trigger language plpgsql as $$
begin
  perform nextval('tries');
  perform pg_sleep(least + random() * (most - least)) from pace;
  return null;
end $$;
create trigger slow after update on counted for each statement execute function slow();
"""


def until(ask: Callable[[], Found | None], what: object, *, seconds: float = PATIENCE_SECONDS) -> Found:
    """Ask until there is an answer that is not false, and answer it; fail when the seconds are over."""
    give_up_at = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > give_up_at:
            raise AssertionError(f"never came within {seconds:g} s: {what() if callable(what) else what}")
        time.sleep(LOOK_SECONDS)


class Process:
    """One process under test; it logs one JSON line an event."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self.is_stopped = False
        self._log = folder / f"{name}.log"
        self._out = folder / f"{name}.out"
        with self._log.open("wb") as err, self._out.open("wb") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=err, cwd=folder, env={**os.environ, **environment}
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, None while it runs."""
        return self._process.poll()

    @property
    def out(self) -> str:
        """What it wrote to stdout."""
        return self._out.read_text(encoding="utf-8")

    @property
    def log(self) -> str:
        """What it wrote to stderr."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def events(self, event: str | None = None, **fields: object) -> list[dict[str, Any]]:
        """Answer the events it logged, of this name and with these fields; a line that a kill tore is left out."""
        found = []
        for line in self.log.splitlines():
            try:
                logged = json.loads(line)
            except ValueError:
                continue
            if isinstance(logged, dict) and event in (None, logged.get("event")):
                found.append(logged)
        return [logged for logged in found if all(logged.get(name) == value for name, value in fields.items())]

    def until_logged(self, event: str, *, seconds: float = PATIENCE_SECONDS, **fields: object) -> dict[str, Any]:
        """Wait for an event and answer it; fail when the process has ended without it."""

        def logged() -> list[dict[str, Any]]:
            has_ended = self.code is not None
            found = self.events(event, **fields)
            assert found or not has_ended, f"{self.name} has ended without {event} {fields}\n{self.log}"
            return found

        return until(logged, lambda: f"{event} {fields}\n{self.log}", seconds=seconds)[0]

    def tell(self, line: str) -> None:
        """Write a line to its stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it, which it cannot notice, and wait for it to be gone."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stop it where it stands, as a machine that is suspended would."""
        self.send(signal.SIGSTOP)
        self.is_stopped = True

    def wake(self) -> None:
        """Let it go on."""
        self.send(signal.SIGCONT)
        self.is_stopped = False

    def wait(self, seconds: float) -> int:
        """Wait for it to end and answer its exit code."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} has not ended within {seconds:g} s\n{self.log}") from None

    def reap(self) -> None:
        """Make sure that nothing is left of it."""
        if self.code is None:
            self.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()


class Site:
    """A schema with a table to be counted, and the processes that work on it."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.folder = folder
        self.processes: list[Process] = []
        self.rows = 0
        self._connection: psycopg.Connection[dict[str, Any]] | None = None

    @property
    def connection(self) -> psycopg.Connection[dict[str, Any]]:
        """A connection of the test's own."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.dsn, autocommit=True, row_factory=dict_row)
        return self._connection

    def fill(self, rows: int, *, least: float = 0.0, most: float | None = None) -> None:
        """Install the tables and put that many rows into `counted`; each batch takes `least` to `most` seconds more."""
        from rowsweep.queue.postgres.install import install

        install(self.dsn)
        self.rows = rows
        self.connection.execute(TABLES)
        self.connection.execute("insert into counted (id) select generate_series(1, %s)", [rows])
        self.connection.execute(SLOW)
        self.connection.execute("analyze counted")
        self.pace(least, most)

    def pace(self, least: float, most: float | None = None) -> None:
        """Let each batch from now on take that many seconds more than its work."""
        self.connection.execute("update pace set least = %s, most = %s", [least, least if most is None else most])

    def launch(self, name: str) -> str:
        """Launch a sweep of the application, to be worked by its processes; answer the run's id."""
        from rowsweep.app.connecting import connect
        from rowsweep.jobs.registry import reset_jobs

        app = connect(self.dsn, work=False, actor="test")
        try:
            from tests.acceptance import application

            return str(application.launch(name)["run_id"])
        finally:
            app.close()
            reset_jobs()

    def worker(
        self, name: str, *, visibility: str = "2s", launch: str | None = None, through: str | None = None
    ) -> Process:
        """Start a worker that looks for work often, over another way `through` to the database where one is given."""
        more = [] if launch is None else ["--launch", launch]
        return self.start(name, [str(APPLICATION), name, "--visibility", visibility, *more], dsn=through)

    def command(self, name: str, *arguments: str) -> Process:
        """Start a command of the real command line."""
        return self.start(name, ["-m", "rowsweep.cli", *arguments, "--app", str(APPLICATION), "--dsn", self.dsn])

    def start(self, name: str, arguments: Sequence[str], *, dsn: str | None = None) -> Process:
        """Start a Python process whose connections bear its name."""
        environment = {"DATABASE_URL": make_conninfo(dsn or self.dsn, application_name=name), "PYTHONUNBUFFERED": "1"}
        process = Process(name, [sys.executable, *arguments], environment, self.folder)
        self.processes.append(process)
        return process

    def disconnect(self) -> None:
        """Close the test's own connection; the next question opens another."""
        if self._connection is not None:
            self._connection.close()

    def close(self) -> None:
        """End every process that was started."""
        for process in self.processes:
            process.reap()
        self.disconnect()

    def one(self, query: str, *params: object) -> dict[str, Any]:
        """Answer the one row of a query."""
        row = self.connection.execute(query, params).fetchone()
        assert row is not None, query
        return row

    def job(self) -> dict[str, Any]:
        """Answer the one job's row."""
        jobs = self.connection.execute(
            "select id, state, attempt, claims, claimed_by, last_error from x_jobs"
        ).fetchall()
        assert len(jobs) == 1, jobs
        return jobs[0]

    def ledger(self) -> dict[str, Any]:
        """Answer the one run's row in the ledger."""
        runs = self.connection.execute(
            "select run_id, name, status, rows, written, batches, last_error from x_backfills"
        ).fetchall()
        assert len(runs) == 1, runs
        return runs[0]

    def swept(self) -> int:
        """Answer how many rows the ledger counts; 0 before it has a row."""
        return int(self.one("select coalesce(max(rows), 0) as rows from x_backfills")["rows"])

    def counts(self) -> dict[int, int]:
        """Answer how many rows were written how often."""
        rows = self.connection.execute("select n, count(*) as rows from counted group by n order by n").fetchall()
        return {row["n"]: row["rows"] for row in rows}

    def tries(self) -> int:
        """Answer how many batches were begun, whatever became of them."""
        return int(self.one("select case when is_called then last_value else 0 end as tries from tries")["tries"])

    def until(
        self, ask: Callable[[], Found | None], *, seconds: float = PATIENCE_SECONDS, what: str = "the condition"
    ) -> Found:
        """Ask until there is an answer that is not false; fail when the seconds are over, or no process is left."""

        def answered() -> Found | None:
            is_deserted = all(process.code is not None for process in self.processes)
            answer = ask()
            assert answer or not is_deserted, f"no process is left\n{self.shown()}"
            return answer

        return until(answered, lambda: f"{what}: {self.shown()}", seconds=seconds)

    def until_swept(self, rows: int) -> None:
        """Wait until the ledger counts that many rows."""
        self.until(lambda: self.swept() >= rows)

    def until_state(self, *states: str, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """Wait for the job to be in one of the states, and answer it; no attempt may fail meanwhile."""

        def arrived() -> dict[str, Any] | None:
            job = self.job()
            assert job["last_error"] is None, self.shown()
            return job if job["state"] in states else None

        return self.until(arrived, seconds=seconds)

    def holder(self) -> Process | None:
        """Answer the process that holds the job; None where nobody does, or one that is gone."""
        claimed_by = self.one("select max(claimed_by) as id from x_jobs")["id"]
        name = str(claimed_by).partition(":")[0]
        return next((process for process in self.processes if process.name == name and process.code is None), None)

    def until_held(self, *, besides: Process | None = None) -> Process:
        """Wait for a living process to hold the job, another one than `besides`."""
        return self.until(lambda: process if (process := self.holder()) is not besides else None)

    def shown(self) -> str:
        """Describe where everything stands, for a failure: what tells most in the first line, the logs at the end."""
        jobs = self.connection.execute("select * from x_jobs").fetchall()
        logs = [f"--- {process.name} ({process.code})\n{process.log[-2000:]}" for process in self.processes]
        return "\n".join([told(self.connection), f"jobs: {jobs}", *logs])

    def assert_exact(self) -> None:
        """Assert that every row was written once, and that the job and the ledger say so."""
        assert self.counts() == {1: self.rows}
        ledger = self.ledger()
        assert (ledger["status"], ledger["rows"]) == ("done", self.rows)
        job = self.job()
        assert (job["state"], job["last_error"]) == ("done", None)
