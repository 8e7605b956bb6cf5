"""Boards for the tests of the views."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rowsweep.operate.board import Board, ScheduleView
from rowsweep.operate.views import JobView, PauseView, QueueView, WorkerView
from tests.show.snapshots import AT, snapshot

QUEUE = QueueView(
    queue="default", ready=120, delayed=3, running=4, suspended=1, done=900, failed=0, dead=2, cancelled=0, due=117,
    oldest_ready_seconds=75.0,
)  # fmt: skip
WORKER = WorkerView(
    id="w1", host="box", pid=7, app_version=None, queues=("default",), names=("totals",), concurrency=None,
    state="running", in_flight=4, processed=10, interrupted=0, wake=True, seen_at=AT,
)  # fmt: skip
PAUSE = PauseView(queue="default", name=None, paused_at=AT, paused_by="user:ann", reason="<b>lunch</b>")
TASK = ScheduleView(name="hourly", cron="5 * * * *", tz="UTC", next_at=AT + timedelta(hours=1), last_fired_at=None)


def dead(**changed: Any) -> JobView:
    fields: dict[str, Any] = dict.fromkeys(JobView.__dataclass_fields__)
    fields |= {"id": "j1", "name": "mail", "queue": "default", "attempt": 5, "max_attempts": 5, "updated_at": AT,
               "last_error": "no\n  <i>luck</i>"}  # fmt: skip
    return JobView(**{**fields, **changed})


def board(**changed: Any) -> Board:
    """Answer a board with something in every part of it, some of it changed."""
    runs = (snapshot(), snapshot(run_id="02", name="<b>bands</b>", status="done", words="done", percent=100.0))
    fields: dict[str, Any] = {
        "place": "shop on localhost", "taken_at": AT, "runs": runs, "queues": (QUEUE,), "workers": (WORKER,),
        "dead": (dead(),), "pauses": (PAUSE,), "schedules": (TASK,),
    }  # fmt: skip
    return Board(**{**fields, **changed})
