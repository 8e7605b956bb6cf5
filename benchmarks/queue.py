"""The queue beside its peers: each in a process and a database of its own, in turn on one server, in one run.

Only what is durably finished counts. The peers have an interpreter of their own (`benchmarks.peers.interpreter`); one
that cannot be run is said to be missing, and the others go on.
"""

from __future__ import annotations

import json
import random
import re
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.measure import Figure, interleave
from benchmarks.peers.place import Place, place_of
from benchmarks.peers.queues.rowsweep import HELD
from benchmarks.tables import ROUNDS, dsn

OURS = "rowsweep"
JOBS = 20_000
FEWER = {"procrastinate": 1_000, "chancy": 2_000, "dbos": 500, "absurd": 300}
"""How many jobs a peer is given that would take minutes over more of them."""
PEERS = ("procrastinate", "pgqueuer", "chancy", "dbos", "absurd", "awa")
TURNS, LATENCIES = 5, 40
"""How often in a round each has its turn of so many enqueues on an idle system."""
COUNTED, IDLE_SECONDS, SETTLES_SECONDS = 500, 60, 8
STARTS_SECONDS, GIVE_UP_SECONDS, _NOT_COUNTED = 3.0, 30.0, 10
_STATEMENT = re.compile(r"^(\w+) LOG:  (?:statement|execute [^:]*): ", re.MULTILINE)
_NO_ADAPTER = {"oban": "its versions need Python 3.12 or newer; it has no adapter here"}


@dataclass(slots=True)
class _Measured:
    """What the rounds said of one library."""

    drain: list[float] = field(default_factory=list)
    enqueue: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    statements: float = 0.0


@cache
def _all() -> dict[str, _Measured]:
    """Measure everyone, turn by turn; one that fails is left out from then on."""
    for name, why in _NO_ADAPTER.items():
        _say(peer=name, missing=why)
    measured = {name: _Measured() for name in (OURS, *PEERS)}
    for number in range(ROUNDS):
        _each(measured, number, partial(_measure, is_first=number == 0))
        # A machine's speed wanders within seconds, and milliseconds tell only beside those of the same moment.
        for turn in range(TURNS):
            _each(measured, turn, _measure_latency)
    for name, found in measured.items():
        _say(library=name, **{f"latency_p{at}_ms": round(_quantile(found.latency, at) * 1000, 2) for at in (50, 99)})
    return measured


def _each(measured: dict[str, _Measured], turn: int, measure: Callable[[str, _Measured], None]) -> None:
    """Measure everyone once, in one order and then in the other."""
    for name in list(measured) if turn % 2 == 0 else list(reversed(measured)):
        try:
            measure(name, measured[name])
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            if name == OURS:
                raise
            _say(peer=name, missing=str(error)[:300])
            del measured[name]


def _measure_latency(name: str, found: _Measured) -> None:
    """Enqueue in one process, one job at a time on an idle system, and see when its body begins in another."""
    with place_of(name) as place, place.asked("work", 3600) as worker, place.asked("ask") as asker:
        for number in range(_NOT_COUNTED + LATENCIES):
            time.sleep(STARTS_SECONDS if number == 0 else 0.02 + random.random() * 0.04)
            began = _answer(asker, "one\n")
            if number >= _NOT_COUNTED:
                found.latency.append(_answer(worker) - began)
            else:
                _answer(worker)


def _answer(process: subprocess.Popen[str], question: str | None = None) -> float:
    """Ask where there is a question, and answer the next line."""
    assert process.stdin is not None
    assert process.stdout is not None
    if question is not None:
        process.stdin.write(question)
        process.stdin.flush()
    ready, _, _ = select.select([process.stdout], [], [], GIVE_UP_SECONDS)
    line = process.stdout.readline() if ready else ""
    if not line:
        raise RuntimeError(f"a process said nothing for {GIVE_UP_SECONDS:g} s, or ended")
    return float(json.loads(line))


def _measure(name: str, found: _Measured, *, is_first: bool) -> None:
    jobs = FEWER.get(name, JOBS)
    with place_of(name) as place:
        found.enqueue.append(jobs / place.ask("enqueue", jobs))
        found.drain.append(jobs / place.ask("drain", jobs))
    if is_first:
        with place_of(name) as place:
            place.ask("enqueue", COUNTED)
            place.log_statements()
            place.ask("drain", COUNTED)
            found.statements = _logged(place.database, _log().read_text(errors="replace")) / COUNTED
    _say(
        library=name,
        jobs=jobs,
        enqueue_per_second=round(found.enqueue[-1]),
        drain_per_second=round(found.drain[-1]),
        statements_per_job=round(found.statements, 3),
    )


@cache
def _idle() -> dict[str, float]:
    """Let everyone idle side by side for a minute, and count what each sends."""
    places, processes = {}, []
    for name in _all():
        place = places[name] = Place(name)
        place.log_statements()
        command = place.command("idle", 3600)
        processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    try:
        time.sleep(SETTLES_SECONDS)
        began_at = _log().stat().st_size
        time.sleep(IDLE_SECONDS)
        sent = _log().read_bytes()[began_at:].decode(errors="replace")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    counts = {name: _logged(place.database, sent) * 60 / IDLE_SECONDS for name, place in places.items()}
    for place in places.values():
        place.drop()
    _say(idle_statements_per_minute=counts)
    return counts


def _log() -> Path:
    """Answer the embedded server's log, which lies beside its data."""
    with psycopg.connect(dsn()) as connection:
        row = connection.execute("show data_directory").fetchone()
    assert row is not None
    return Path(row[0]).with_name("pg.log")


def _logged(database: str, log: str) -> int:
    return sum(found == database for found in _STATEMENT.findall(log))


def _say(**fields: object) -> None:
    print(json.dumps(fields), file=sys.stderr if "missing" not in fields else sys.stdout, flush=True)


def _quantile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def _highest(name: str, unit: str, bar: float, of: Callable[[_Measured], float]) -> Figure:
    values = {library: of(found) for library, found in _all().items()}
    ours = values.pop(OURS)
    peer = max(values, key=lambda library: values[library])
    return Figure(name=name, unit=unit, ours=ours, reference=values[peer], bar=bar, peer=peer)


def _lowest(name: str, unit: str, values: dict[str, float]) -> Figure:
    others = {library: value for library, value in values.items() if library != OURS}
    peer = min(others, key=lambda library: others[library])
    return Figure(
        name=name, unit=unit, ours=values[OURS], reference=others[peer], bar=1.0, better="lower", peer=peer
    )  # fmt: skip


def drain() -> Figure:
    """Measure jobs without work, drained by one worker process."""
    return _highest("queue.drain", "jobs/s", 1.5, lambda found: statistics.median(found.drain))


def enqueue() -> Figure:
    """Measure one bulk enqueue."""
    return _highest("queue.enqueue", "jobs/s", 1.0, lambda found: statistics.median(found.enqueue))


def latency(percent: int) -> Figure:
    """Measure from the enqueue's call in one process to the body in a worker's, on an idle system."""
    values = {name: _quantile(found.latency, percent) * 1000 for name, found in _all().items()}
    return _lowest(f"queue.latency.p{percent}", "ms", values)


def statements_per_job() -> Figure:
    """Count what a drain of a few hundred jobs sends, the worker's start included."""
    values = {name: found.statements for name, found in _all().items()}
    return _lowest("queue.statements.job", "statements", values)


def statements_idle() -> Figure:
    """Count what an idle worker sends in a minute."""
    return _lowest("queue.statements.idle", "statements", _idle())


def _disturbed(name: str, disturb: Callable[[Place], Any]) -> Figure:
    """Measure our drain under a disturbance against the undisturbed one."""

    def drained(disturb: Callable[[Place], Any] | None) -> float:
        with place_of(OURS) as place:
            held = None if disturb is None else disturb(place)
            place.ask("enqueue", JOBS)
            rate = JOBS / float(place.ask("drain", JOBS, **({"ROWSWEEP_BENCH_HELD": "1"} if disturb else {})))
            if held is not None:
                held.close()
            return rate

    medians = interleave(lambda: drained(disturb), lambda: drained(None), ROUNDS)
    return Figure(name=name, unit="jobs/s", ours=medians.ours, reference=medians.reference, bar=0.5)


def _hold_snapshot(place: Place) -> psycopg.Connection[Any]:
    """Keep every row version from here on."""
    session = place.session()
    session.execute("begin isolation level repeatable read")
    session.execute("select count(*) from x_jobs")
    return session


def _block(place: Place) -> None:
    """Put 100,000 older jobs behind a key whose only slot is taken."""
    with place.session() as session:
        session.execute(
            "insert into x_jobs "
            "(id, name, state, input, idempotency_key, concurrency_key, run_id, max_attempts, run_at) "
            f"select gen_random_uuid(), '{HELD}', 'ready', '1', n::text, 'busy', gen_random_uuid(), 5, "
            "now() - interval '1 hour' from generate_series(1, 100000) n"
        )
        session.execute(
            "insert into x_job_leases (lease_key, slot, holder, job_id, expires_at) "
            f"values ('job:{HELD}:busy', 0, 'somebody', gen_random_uuid(), now() + interval '1 day')"
        )
        session.execute("analyze x_jobs")


def _finish(place: Place) -> None:
    """Leave 1,000,000 jobs that are done."""
    with place.session() as session:
        session.execute(
            "insert into x_jobs "
            "(id, name, state, input, idempotency_key, run_id, max_attempts, attempt, claims, run_at) "
            "select gen_random_uuid(), 'noop', 'done', '1', n::text, gen_random_uuid(), 5, 1, 1, "
            "now() - interval '1 hour' from generate_series(1, 1000000) n"
        )
        session.execute("vacuum analyze x_jobs")


FIGURES: dict[str, Callable[[], Figure]] = {
    "queue.drain": drain,
    "queue.enqueue": enqueue,
    "queue.latency.p50": lambda: latency(50),
    "queue.latency.p99": lambda: latency(99),
    "queue.statements.job": statements_per_job,
    "queue.statements.idle": statements_idle,
    "queue.drain.snapshot": lambda: _disturbed("queue.drain.snapshot", _hold_snapshot),
    "queue.drain.blocked": lambda: _disturbed("queue.drain.blocked", _block),
    "queue.drain.finished": lambda: _disturbed("queue.drain.finished", _finish),
}
