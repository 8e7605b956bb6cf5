"""One wait for an event in memory: begun once, asked again until its event or its timeout has come."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rowsweep.queue.memory import jsonb
from rowsweep.queue.memory.events.store import answer_to, asked_at
from rowsweep.queue.stores.steps import Step

if TYPE_CHECKING:
    from datetime import datetime

    from rowsweep.queue.memory.state import State
    from rowsweep.queue.stores.events import StepWait


def await_event(state: State, asked: StepWait) -> Step:
    """Answer the wait's row as it is now: `done` with the event's record, `timed-out`, or still `waiting`."""
    now = state.now()
    before = state.steps.get((asked.run_id, asked.name))
    row = _begun(state, asked, now) if before is None else replace(before, event=asked.event, correlation_key=asked.key)
    started_at, behind = asked_at(row)
    since = asked.since if before is None and asked.since is not None else started_at
    event = answer_to(state, row, since, behind)
    if event is not None:
        return replace(row, status="done", output=jsonb.bind(event.as_json()), completed_at=now)
    if row.wake_at is not None and row.wake_at <= now:
        return replace(row, status="timed-out", output=None, completed_at=now)
    return row


def _begun(state: State, asked: StepWait, now: datetime) -> Step:
    timeout = asked.timeout_seconds
    snapshot: Any = {"snapshot": next(state.event_numbers)}
    return Step(
        run_id=asked.run_id,
        name=asked.name,
        kind="event",
        status="waiting",
        output=jsonb.bind(snapshot),
        attempts=0,
        error=None,
        started_at=now,
        completed_at=None,
        wake_at=None if timeout is None else now + timedelta(seconds=timeout),
        event=asked.event,
        correlation_key=asked.key,
    )
