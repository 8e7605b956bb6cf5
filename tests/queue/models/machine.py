"""What a small model knows of one queue, and what must then be true of a driver beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from rowsweep.queue.records import FINISHED_STATES, LIVE_STATES, Claim, JobFilter
from rowsweep.queue.selection import PROMOTABLE_STATES, BulkResult
from rowsweep.queue.verdicts import Bury, Defer, Done, Drop, GiveBack, Park, Refuse, Retry, Shed, Verdict
from tests.queue.world import World

STEP_SECONDS = 50.0
"""Delays, leases and the passing of time are whole multiples, so a moving clock cannot blur what is due."""
LEASE_STEPS = 2
DELAYED: dict[type, int] = {Retry: 1, Defer: 2, Park: 2, Shed: 1, GiveBack: 0}
COUNTED = (Done, Retry, Bury, Drop, Refuse)
STATE_AFTER: dict[type, str] = {Done: "done", Bury: "dead", Drop: "failed", Refuse: "failed", Park: "suspended"}


@dataclass
class Row:
    """What the model knows of one job; instants are in steps from the model's beginning."""

    name: str
    key: str
    priority: int
    max_attempts: int
    run_id: UUID
    run_at: int
    made: int
    entered: int
    state: str = "ready"
    attempt: int = 0
    claims: int = 0
    holder: str | None = None
    visible_at: int | None = None
    steps: dict[str, Any] = field(default_factory=dict)


class ModelledQueue(RuleBasedStateMachine):
    """Hold the model beside one driver; `entered` orders rows that fell due within one step."""

    world_of: ClassVar[Callable[[], World]]
    world: World

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[UUID, Row] = {}
        self.claims: list[Claim] = []
        self.pauses: set[tuple[str | None, str | None]] = set()
        self.counted: Counter[tuple[str, str]] = Counter()
        self.now = 0
        self.moves = 0

    def _apply(self, job_id: UUID, verdict: Verdict) -> None:
        row, kind = self.rows[job_id], type(verdict)
        if not isinstance(verdict, COUNTED):
            row.attempt = max(row.attempt - 1, 0)
        if kind in DELAYED:
            delay = getattr(verdict, "delay_seconds", 0.0)
            row.run_at, row.entered = self.now + round(delay / STEP_SECONDS), self.moves
        row.state, row.holder, row.visible_at = STATE_AFTER.get(kind, "ready"), None, None

    def _moved(self, answer: BulkResult, movable: set[UUID], limit: int) -> list[UUID]:
        """Compare a bulk verb's answer with what could move, and answer what did: no more, and nothing else."""
        rows = {job.id: job for job in self.world.inspection.list(JobFilter(), limit=1000)}
        moved = [
            j for j, row in self.rows.items() if j not in rows or self._has_moved(row, rows[j].state, rows[j].run_at)
        ]
        assert set(moved) <= movable
        assert answer == BulkResult(affected=len(moved), remaining=len(movable) - len(moved))
        assert len(moved) == min(limit, len(movable))
        return moved

    def _has_moved(self, row: Row, state: str, run_at: datetime) -> bool:
        return row.state != state or (self._waits_for_its_time(row) and run_at <= self.world.hands.now())

    def _requeued(self, row: Row) -> None:
        row.state, row.attempt, row.run_at, row.entered = "ready", 0, self.now, self._tick()

    def _promoted(self, row: Row) -> None:
        row.state, row.run_at, row.entered = "ready", self.now, self._tick()

    def _waits_for_its_time(self, row: Row) -> bool:
        return row.state in PROMOTABLE_STATES and row.run_at > self.now

    def _is_chosen(self, row: Row, state: str | None, name: str | None) -> bool:
        return state in (None, row.state) and name in (None, row.name)

    def _is_paused(self, row: Row) -> bool:
        return bool(self.pauses & {("default", None), (None, row.name), ("default", row.name)})

    def _end(self, job_id: UUID, state: str) -> None:
        assert state in FINISHED_STATES
        row = self.rows[job_id]
        row.state, row.holder, row.visible_at = state, None, None

    def _live(self, name: str, key: str) -> UUID | None:
        live = (j for j, row in self.rows.items() if (row.name, row.key) == (name, key) and row.state in LIVE_STATES)
        return next(live, None)

    def _holds(self, claim: Claim) -> bool:
        row = self.rows.get(claim.job_id)
        return row is not None and (row.state, row.holder, row.claims) == ("running", claim.worker_id, claim.claim)

    def _is_past(self, step: int | None) -> bool:
        return step is not None and step <= self.now

    def _order(self, job_id: UUID) -> tuple[Any, ...]:
        row = self.rows[job_id]
        return (-row.priority, row.run_at, row.entered, job_id)

    def _tick(self) -> int:
        self.moves += 1
        return self.moves

    def _some_job(self, data: st.DataObject) -> UUID | None:
        return data.draw(st.sampled_from(sorted(self.rows))) if self.rows else None

    def _some_claim(self, data: st.DataObject) -> Claim | None:
        recent = self.claims[-6:]
        return data.draw(st.sampled_from(recent)) if recent else None
