"""Steps in memory, every write fenced on the claim."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from rowsweep.queue.memory import jsonb
from rowsweep.queue.memory.events.waiting import await_event
from rowsweep.queue.memory.state import lease_lost, locked, step_answer
from rowsweep.queue.stores.steps import Recorded, Step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.records import Claim
    from rowsweep.queue.stores.events import StepWait
    from rowsweep.queue.stores.steps import StepPut, StepSleep


class MemorySteps:
    """Keep a run's steps in a dict."""

    def __init__(self, state: State) -> None:
        self._state = state

    @locked
    def get(self, run_id: UUID, name: str) -> Step | None:
        """Answer one step."""
        step = self._state.steps.get((run_id, name))
        return None if step is None else step_answer(step)

    @locked
    def list(self, run_id: UUID, *, kinds: Sequence[str] | None = None) -> list[Step]:
        """Answer a run's steps by `started_at`, then name."""
        mine = [step for step in self._state.steps.values() if step.run_id == run_id]
        chosen = [step for step in mine if kinds is None or step.kind in kinds]
        return [step_answer(step) for step in sorted(chosen, key=lambda step: (step.started_at, step.name))]

    @locked
    def recorded(self, run_id: UUID) -> dict[str, Recorded]:
        """Answer a run's steps by name, as a replay needs them."""
        mine = [step for step in self._state.steps.values() if step.run_id == run_id and step.kind != "part"]
        return {step.name: Recorded(step.kind, step.status, step.output) for step in mine}

    @locked
    def put(self, step: StepPut, claim: Claim) -> Step:
        """Write a step, or raise LeaseLost with nothing written."""
        if self._state.held(claim) is None:
            raise lease_lost(claim)
        return step_answer(write_step(self._state, step, self._state.now()))

    @locked
    def sleep(self, step: StepSleep, claim: Claim) -> Step:
        """Store the sleep's instant, once, and say whether it has passed."""
        if self._state.held(claim) is None:
            raise lease_lost(claim)
        now = self._state.now()
        row = self._state.steps.get((step.run_id, step.name)) or _begun(step, now)
        is_over = row.wake_at is not None and row.wake_at <= now
        if is_over and row.completed_at is None:
            row = replace(row, status="done", completed_at=now)
        self._state.steps[step.run_id, step.name] = row
        return step_answer(row)

    @locked
    def wait(self, step: StepWait, claim: Claim) -> Step:
        """Store what the wait is for, once, and say whether it has come."""
        if self._state.held(claim) is None:
            raise lease_lost(claim)
        row = await_event(self._state, step)
        self._state.steps[step.run_id, step.name] = row
        return step_answer(row)

    @locked
    def delete(self, run_id: UUID, name: str) -> bool:
        """Remove one step."""
        return self._state.steps.pop((run_id, name), None) is not None

    @locked
    def guard(self, claim: Claim) -> bool:
        """Say whether the job still stands under this claim; a transaction's lock keeps it so until its end."""
        return self._state.held(claim) is not None


def _begun(sleep: StepSleep, now: datetime) -> Step:
    return Step(
        run_id=sleep.run_id,
        name=sleep.name,
        kind="sleep",
        status="waiting",
        output=None,
        attempts=0,
        error=None,
        started_at=now,
        completed_at=None,
        wake_at=now + timedelta(seconds=sleep.seconds),
    )


def write_step(state: State, put: StepPut, now: datetime) -> Step:
    """Write a step's row whose fence has been asked: it appears, or is replaced in place."""
    before = state.steps.get((put.run_id, put.name))
    failures = before.attempts if before else 0
    row = Step(
        run_id=put.run_id,
        name=put.name,
        kind=put.kind,
        status=put.status,
        output=jsonb.bind(put.output),
        attempts=failures + (put.status == "failed"),
        error=put.error,
        started_at=before.started_at if before else now,
        completed_at=None if put.status == "waiting" else now,
    )
    state.steps[put.run_id, put.name] = row
    return row
