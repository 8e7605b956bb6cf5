"""What a sweep on a busy, large database costs beside a plain one."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import psycopg

import rowsweep as rs
from benchmarks.measure import Figure, interleave, seconds
from benchmarks.tables import ROUNDS, ROWS, dsn, make_orders, worked
from rowsweep.sweeps.handle import Sweep
from rowsweep.sweeps.health.question import ask

_TOTALS = {"total": "price * qty", "writes": "writes + 1"}
_QUESTIONS = 100
# Whole sweeps, so that what it costs to start (about 15 ms) counts as in a sweep of some length.
_GOVERNED_ROWS = ROWS
_GOVERNED_ROUNDS = max(ROUNDS, 5)


def governor() -> Figure:
    """Measure the same sweep with all signals heeded and with none; nothing may be slowed, or it is no measure."""
    heeding, heedless = (_set(f"set-health-{health}", health) for health in ("on", "off"))
    _swept(heeding)
    medians = interleave(lambda: _swept(heeding), lambda: _swept(heedless), _GOVERNED_ROUNDS)
    return Figure(name="scale.governor", unit="rows/s", ours=medians.ours, reference=medians.reference, bar=0.99)


def question() -> Figure:
    """Measure the question that is asked once a second, beside fifty sessions; the reference is that second."""
    sessions = [psycopg.connect(dsn(), autocommit=True) for _ in range(50)]
    try:
        asking = sessions[0]
        ask(asking, [])
        taken = statistics.median(seconds(lambda: ask(asking, [])) for _ in range(_QUESTIONS))
    finally:
        for session in sessions:
            session.close()
    return Figure(name="scale.governor.question", unit="s", ours=taken, reference=1.0, bar=0.01, better="lower")


def _set(name: str, health: Any) -> Sweep[Any]:
    rows = rs.Rows("ours")
    return rs.backfill(name, rows=rows, set=_TOTALS, batch_rows=5_000, adapt=False, health=health)


def _swept(sweep: Sweep[Any]) -> float:
    """Sweep a table made anew, which no vacuum comes to meanwhile, and answer rows a second."""
    make_orders("ours", _GOVERNED_ROWS)
    with psycopg.connect(dsn(), autocommit=True) as connection:
        connection.execute("alter table ours set (autovacuum_enabled = off)")
    run = sweep.launch(force=True)
    taken = worked()
    snapshot = run.snapshot()
    assert (snapshot.status, snapshot.rows) == ("done", _GOVERNED_ROWS), snapshot
    did = snapshot.options.get("governor", {})
    assert not [*did.get("held", ()), *did.get("slowed", ())], did
    return _GOVERNED_ROWS / taken


FIGURES: dict[str, Callable[[], Figure]] = {
    "scale.governor": governor,
    "scale.governor.question": question,
}
