"""Tables of jobs, queues, workers and names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rowsweep.operate.views import JobView, PauseView, QueueView, UndeclaredView, WorkerView
from rowsweep.queue.stores.counters import CounterBucket
from rowsweep.show.tables import queue as tables
from tests.show.snapshots import drawn

AT = datetime(2026, 3, 1, 4, 30, tzinfo=UTC)


def job(**changes: Any) -> JobView:
    given: dict[str, Any] = dict.fromkeys(JobView.__dataclass_fields__)
    given |= {"id": "01998f0a", "name": "mail", "queue": "default", "state": "ready", "attempt": 1, "max_attempts": 5}
    return JobView(**given | {"run_at": AT, "created_at": AT, "updated_at": AT, "cursor": "c"} | changes)


def test_a_waiting_job_that_no_worker_has_stands_out() -> None:
    """DESIGN §4: such rows stay ready, and the list says that nobody declares them."""
    lines = tables.jobs_table([job(), job(id="02", state="delayed")], {"02"}).as_plain().splitlines()
    assert "no worker has it" not in lines[1]
    assert "delayed, no worker has it" in lines[2]


def test_dead_letters_say_when_and_of_what_they_died() -> None:
    """S-090, N-104."""
    line = tables.dead_table([job(state="dead", last_error="ValueError: \x1b[31mno")]).as_plain().splitlines()[1]
    assert line == "01998f0a  mail  default  2026-03-01 04:30:00         1  ValueError: \\x1b[31mno"
    assert tables.dead_table([]).as_plain() == "No dead letter."


def test_queues_are_shown_by_state_and_a_narrow_terminal_keeps_what_needs_somebody() -> None:
    """N-111."""
    counts = dict.fromkeys(("delayed", "running", "suspended", "failed", "cancelled"), 0)
    queue = QueueView(queue="default", ready=12, due=7, done=1_234_567, dead=3, oldest_ready_seconds=75.0, **counts)
    plain = tables.stats_table([queue]).as_plain().splitlines()
    assert plain[0].split()[:3] == ["queue", "ready", "due"]
    assert "1,234,567" in plain[1]
    assert plain[1].endswith("1 min 15 s")
    assert drawn(tables.stats_table([queue]).in_terminal(), 40)[0].split() == [
        "queue",
        "ready",
        "due",
        "running",
        "dead",
    ]
    assert tables.stats_table([]).as_plain() == "No job is in any queue."


def test_a_worker_is_shown_with_where_it_runs_and_what_it_claims() -> None:
    """D-21."""
    worker = WorkerView(
        id="box-7", host="box", pid=42, app_version=None, queues=("a", "b"), names=("mail",), concurrency={"a": 2},
        state="draining", in_flight=2, processed=1_000, interrupted=0, wake=False, seen_at=AT,
    )  # fmt: skip
    line = tables.workers_table([worker]).as_plain().splitlines()[1]
    assert line.split("  ")[0] == "box-7"
    assert all(words in line for words in ("box:42", "draining", "a, b", "1,000", "polls", "mail"))
    assert tables.workers_table([]).as_plain() == "No worker lives. Start one: rowsweep worker"


def test_a_job_name_that_nobody_declares_stands_out() -> None:
    unknown = [UndeclaredView(queue="default", name="b", waiting=1_200)]
    shown = tables.names_table([{"name": "a", "kind": "job", "queue": "default"}], unknown).as_plain()
    assert "not declared" in shown
    assert "1,200 that nobody here and no live worker has code for" in shown


def test_pauses_and_endings_are_shown_in_words() -> None:
    """S-402, D-20."""
    pause = PauseView(queue=None, name="mail", paused_at=AT, paused_by="ann", reason="disk\nfull")
    line = tables.pauses_table([pause]).as_plain().splitlines()[1]
    assert line == "every queue  mail  2026-03-01 04:30:00  ann  disk\\nfull"
    assert tables.pauses_table([]).as_plain() == "Nothing is paused."
    bucket = CounterBucket(tier="hour", bucket_at=AT, name="mail", completed=4, dead=1, run_ms=6_000, max_run_ms=3_000)
    idle = CounterBucket(tier="hour", bucket_at=AT, name="mail", dead=1)
    lines = tables.counters_table([bucket, idle]).as_plain().splitlines()
    assert lines[1].split()[-4:] == ["1.5", "s", "3.0", "s"]
    assert lines[2].rstrip().endswith("0")
    assert tables.counters_table([]).as_plain() == "No run has ended in that time."
