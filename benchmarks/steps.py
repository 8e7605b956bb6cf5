"""How fast memoised steps are stored and replayed, beside dbos and absurd-sdk on the same server in the same run.

The peers have an interpreter of their own, with the versions of `constraints-peers.txt`; it is made when it is missing.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import psycopg

import rowsweep as rs
from benchmarks.measure import Figure, interleave
from benchmarks.peers.interpreter import interpreter
from benchmarks.tables import ROUNDS, app, dsn

STEPS, RECORDED = 1_000, 5_000
_PEERS = ("absurd", "dbos")
_AGAIN = rs.Retry(attempts=2, base="0s", jitter=False)


class _Ours:
    """One run of so many steps that fails at its end, and its retry, which only replays them."""

    def __init__(self, steps: int) -> None:
        self.took: list[float] = []
        self.statements: list[int] = []
        self._handle = rs.job(f"steps-{secrets.token_hex(4)}", self._run, tenant="none", retry=_AGAIN)
        self._steps = steps
        app()

    def work(self) -> tuple[float, float]:
        """Answer the seconds of the steps alone, and of the whole execution that replays them."""
        self._handle.enqueue()
        worker = app().worker(drain_on_shutdown=False, names=[self._handle.name])
        worker.tick()
        began = time.perf_counter()
        (replayed,) = worker.tick()
        seconds = time.perf_counter() - began
        worker.stop()
        assert replayed.outcome == "completed", replayed
        return self.took[0], seconds

    def _run(self, ctx: rs.Ctx) -> None:
        began = time.perf_counter()
        with _counted() as sent:
            for number in range(self._steps):
                ctx.step.run(f"step {number}", lambda: 1)
        self.took.append(time.perf_counter() - began)
        self.statements.append(len(sent))
        if ctx.attempt == 1:
            raise ConnectionError("again")


class _counted:  # noqa: N801 - reads as what it answers in a `with`
    """Answer the list that every statement of this process is noted in."""

    def __enter__(self) -> list[str]:
        self._execute: Any = psycopg.Cursor.execute
        sent: list[str] = []

        def noted(cursor: Any, query: Any, *given: Any, **named: Any) -> Any:
            sent.append(str(query))
            return self._execute(cursor, query, *given, **named)

        psycopg.Cursor.execute = noted  # type: ignore[method-assign,assignment]
        return sent

    def __exit__(self, *_: object) -> None:
        psycopg.Cursor.execute = self._execute  # type: ignore[method-assign]


def run() -> Figure:
    """Measure 1,000 trivial steps, each stored before the next."""
    medians = interleave(
        lambda: STEPS / _Ours(STEPS).work()[0], lambda: max(STEPS / run for run, _ in _peers(STEPS)), max(ROUNDS, 3)
    )
    return Figure(name="steps.run.1000", unit="steps/s", ours=medians.ours, reference=medians.reference, bar=2.0)


def replay() -> Figure:
    """Measure the replay of 5,000 recorded steps, from the claim to the settle."""
    medians = interleave(
        lambda: _Ours(RECORDED).work()[1], lambda: min(replayed for _, replayed in _peers(RECORDED)), max(ROUNDS, 3)
    )
    return Figure(
        name="steps.replay.5000", unit="s", ours=medians.ours, reference=medians.reference, bar=1.0, better="lower"
    )


def statements() -> Figure:
    """Count what 1,000 steps send: one statement each and one to read those stored before; then the replay's one."""
    ours = _Ours(STEPS)
    ours.work()
    return Figure(
        name="steps.statements", unit="statements", ours=float(sum(ours.statements)), reference=STEPS + 2.0, bar=1.0,
        better="lower",
    )  # fmt: skip


def _peers(steps: int) -> list[tuple[float, float]]:
    """Answer for each peer the seconds of its steps and of their replay, in a database of its own."""
    measured = []
    for peer in _PEERS:
        name = f"peer_{secrets.token_hex(4)}"
        with psycopg.connect(dsn(), autocommit=True) as connection:
            connection.execute(f"create database {name}")
        command = [str(interpreter()), "-m", f"benchmarks.peers.steps.{peer}", dsn().replace("/postgres?", f"/{name}?")]
        done = subprocess.run([*command, str(steps)], check=True, capture_output=True, text=True, timeout=600)
        answer = json.loads(done.stdout.splitlines()[-1])
        print(json.dumps({"peer": peer, "steps": steps, **answer}), file=sys.stderr, flush=True)
        measured.append((answer["run_seconds"], answer["replay_seconds"]))
    return measured


FIGURES: dict[str, Callable[[], Figure]] = {
    "steps.run.1000": run,
    "steps.replay.5000": replay,
    "steps.statements": statements,
}
