"""The numbers that the behaviour fixes, each where it lives."""

from __future__ import annotations

import dataclasses
import inspect
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rowsweep.app import agents
from rowsweep.jobs import handle
from rowsweep.jobs.attempts import settled
from rowsweep.lifecycle import configure_lifecycle
from rowsweep.operate import pages
from rowsweep.options import duration
from rowsweep.outbox.options import RelayOptions
from rowsweep.queue import records, selection
from rowsweep.queue.memory.events.bus import MemoryEventBus
from rowsweep.queue.postgres import connections
from rowsweep.queue.postgres.bus import PostgresEventBus
from rowsweep.queue.postgres.stores import enqueue
from rowsweep.queue.stores import workers
from rowsweep.queue.waking import wake
from rowsweep.scheduler.leaders import LeaseLeader
from rowsweep.scheduler.options import SchedulerOptions
from rowsweep.steps import runner, trace
from rowsweep.worker import settler
from rowsweep.worker.admission import admitter
from rowsweep.worker.options import WorkerOptions
from rowsweep.worker.run import deadlines

BEHAVIOUR = Path(__file__).parents[1] / "docs" / "behaviour.md"


def default(function: Any, parameter: str) -> Any:
    """Answer a parameter's default."""
    return inspect.signature(function).parameters[parameter].default


def plain(found: Any) -> float:
    """Answer a number, or a span's seconds."""
    span = found if isinstance(found, int | float) else duration(found, option="x") if isinstance(found, str) else found
    return span.total_seconds() if isinstance(span, timedelta) else float(span)


WORKER, RELAY, SCHEDULER = WorkerOptions(), RelayOptions(), SchedulerOptions()
EVENT_POLL = next(field.default for field in dataclasses.fields(handle.JobOptions) if field.name == "event_poll")
NUMBERS: dict[str, Any] = {
    "visibility timeout | 30 s": {plain(WORKER.visibility), records.DEFAULT_VISIBILITY_SECONDS},
    "queue depth sampled, worker announced | 15 s": {workers.SAMPLE_SECONDS, plain(WORKER.announce_every)},
    "lease renewal | 10 s": [WORKER.renew_seconds],
    "drain budget / margin | 25 s / 2 s": [default(configure_lifecycle, "deadline"), WORKER.margin],
    "keeper's own statement timeout | 5 s (f)": [connections.CONTROL_STATEMENT_SECONDS],
    "leader lease / `renew_every` | 30 s / 10 s": [default(LeaseLeader, "lease"), default(LeaseLeader, "renew_every")],
    "poll floor (after an empty or failed pass) | 0.5 s": [WORKER.poll_floor],
    "scheduler gap between rounds | 1 s": [SCHEDULER.gap],
    "poll ceiling without / with a proven wake | 2 s / 30 s": [WORKER.poll, WORKER.poll_with_wake],
    "relay batch / lease | 100 / 30 s": [RELAY.batch, RELAY.lease],
    "concurrency per queue / in a kernel | 8 / 4": [WORKER.concurrency_of("any"), agents.KERNEL_CONCURRENCY],
    "event TTL / wait timeout / `event_poll` | 24 h / 24 h / 30 s": [
        default(PostgresEventBus, "default_ttl"), default(runner.StepRunner.wait_for_event, "timeout"), EVENT_POLL,
    ],
    "settlements in one statement | ≤ 1,000 (f)": [settler.GROUP],
    "bus `list_limit` / `max_events` | 1,000 / 10,000": [
        default(PostgresEventBus, "list_limit"), default(MemoryEventBus, "max_events"),
    ],
    "rows in one `enqueue_many` statement | ≤ 1,000 (f)": [enqueue.ENQUEUE_ROWS],
    "page default / maximum | 100 / 200 (f)": [pages.DEFAULT_JOB_PAGE, pages.MAX_JOB_PAGE],
    "shed delay | 1 s + up to 1 s (f)": [admitter.SHED_SECONDS, admitter.SHED_SECONDS],
    "bulk verb | 1,000 (f)": [selection.MAX_BULK_ROWS],
    "progress throttle | 1 s": [WORKER.progress_every],
    "`on_settled` tries, pauses | 3, 0.2 s then 1 s (f)": [settled.ON_SETTLED_ATTEMPTS, *settled.ON_SETTLED_PAUSES],
    "grace after a deadline | 1 s (f)": [deadlines.GRACE_SECONDS],
    "wake proof within / repeated every | 2 s / 60 s": [wake.PROOF_WITHIN_SECONDS, wake.PROOF_EVERY_SECONDS],
    "`ENQUEUE_ATTEMPTS`, `MAX_TRACE_NAMES` | 2, 200 (f)": [enqueue.ENQUEUE_ATTEMPTS, trace.MAX_TRACE_NAMES],
    "wake reconnect | 1 s doubling to 30 s": [wake._FIRST_PAUSE, wake._LONGEST_PAUSE],
}  # fmt: skip


def documented() -> list[str]:
    """Read the table of D-15: two numbers a line."""
    text = BEHAVIOUR.read_text(encoding="utf-8").partition("- **D-15**")[2]
    lines = [line.strip("| ").split(" | ") for line in text.split("\n\n")[1].splitlines()[2:]]
    return [f"{what} | {value}" for cells in lines for what, value in (cells[:2], cells[2:])]


@pytest.mark.parametrize("line", documented())
def test_a_number_of_the_table_is_the_code_s(line: str) -> None:
    """D-15."""
    said = re.sub(r"(?<=\d),(?=\d)", "", line.rpartition(" | ")[2])
    numbers = [float(one) * (3600 if unit == "h" else 1) for one, unit in re.findall(r"([\d.]+)(?: ([smh])\b)?", said)]
    assert [plain(found) for found in NUMBERS[line]] == numbers


def test_no_number_of_the_table_is_left_out() -> None:
    """D-15."""
    assert set(documented()) == set(NUMBERS)
