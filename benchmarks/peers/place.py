"""A database of one library's own on the benchmarks' server, and the processes that work on it."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from benchmarks.peers.interpreter import interpreter
from benchmarks.tables import dsn


class Place:
    """A database of one library's own, with its tables."""

    def __init__(self, name: str) -> None:
        self.library = name
        self.database = f"queue_{name}_{secrets.token_hex(3)}"
        self._admin(f"create database {self.database}")
        self.dsn = dsn().replace("/postgres?", f"/{self.database}?")
        self.ask("install")

    def ask(self, verb: str, amount: int = 0, **environment: str) -> Any:
        """Do one verb in a process of its own, and answer what it says."""
        environment = {**os.environ, **environment}
        done = subprocess.run(
            self.command(verb, amount), capture_output=True, text=True, timeout=900, check=False, env=environment
        )
        if done.returncode or not done.stdout.strip():
            raise RuntimeError((done.stderr.strip() or "it said nothing").splitlines()[-1])
        return json.loads(done.stdout.splitlines()[-1])

    @contextmanager
    def asked(self, verb: str, amount: int = 0) -> Iterator[subprocess.Popen[str]]:
        """Keep a process of its own at one verb for the block, which is asked and answers line by line."""
        lines: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        command = self.command(verb, amount)
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, **lines) as process:
            try:
                yield process
            finally:
                process.kill()

    def command(self, verb: str, amount: int) -> list[str]:
        """Answer the command of one verb: ours runs by this interpreter, a peer by its own."""
        python = sys.executable if self.library == "rowsweep" else str(interpreter())
        return [python, "-m", f"benchmarks.peers.queues.{self.library}", self.dsn, verb, str(amount)]

    def drop(self) -> None:
        """Take the database away."""
        self._admin(f"drop database {self.database} with (force)")

    def log_statements(self) -> None:
        """Have the server's log name every statement sent here from now on."""
        self._admin("alter system set log_line_prefix = '%d '")
        self._admin("select pg_reload_conf()")
        self._admin(f"alter database {self.database} set log_statement = 'all'")

    def session(self) -> psycopg.Connection[Any]:
        """Open a session."""
        return psycopg.connect(self.dsn, autocommit=True)

    def _admin(self, order: str) -> None:
        with psycopg.connect(dsn(), autocommit=True) as connection:
            connection.execute(order)


@contextmanager
def place_of(name: str) -> Iterator[Place]:
    """Make one for the block."""
    place = Place(name)
    try:
        yield place
    finally:
        place.drop()
