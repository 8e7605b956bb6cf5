"""What is where: rooms, stores and drivers as the design draws them."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest

import rowsweep as rs
from rowsweep.jobs.attempts.retry import Retry
from rowsweep.jobs.handle import JobOptions
from rowsweep.queue import contract, records, verdicts
from rowsweep.queue.memory.driver import MemoryDriver
from rowsweep.queue.stores import ledger
from rowsweep.worker.options import WorkerOptions
from rowsweep.worker.run.execution import Outcome
from rowsweep.worker.tally import Tally, WorkerStats
from rowsweep.worker.worker import Worker

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "rowsweep"
ROOMS = {
    "telemetry", "jobs", "queue", "steps", "worker", "scheduler", "outbox", "sweeps", "webhook", "operate", "show",
    "cli", "testing",
}  # fmt: skip


def methods(kind: type) -> set[str]:
    """Answer the public methods that a class itself declares."""
    return {name for name, value in vars(kind).items() if not name.startswith("_") and callable(value)}


def imports(path: Path) -> set[str]:
    """Answer the modules that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
    return found


def test_every_room_of_the_design_is_there_and_no_other() -> None:
    """S-001, S-002: jobs and tasks, steps, outbox, the queue with its drivers, and the sweeps; one folder a room."""
    folders = {path.name for path in SOURCES.iterdir() if (path / "__init__.py").exists()}
    assert folders == ROOMS | {"app", "embedded"}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = [one["layers"] for one in contracts if one["type"] == "layers"]
    held = {name.strip("() ") for layer in layers for part in layer.split("|") for name in part.split(":")}
    assert held >= ROOMS


def test_rooms_within_rooms_are_those_of_the_design() -> None:
    """S-002: by idea again, each drawn."""
    drawing = (ROOT / "docs" / "design.md").read_text(encoding="utf-8").partition("| within | rooms |")[2]
    rows = [line.split("|")[1:3] for line in drawing.partition("\n\n")[0].splitlines()[2:]]
    drawn = {room.strip("` /"): set(re.findall(r"`([a-z]+)/`", inner)) for room, inner in rows}
    for room in ROOMS:
        within = {path.name for path in (SOURCES / room).iterdir() if path.is_dir() and path.name != "__pycache__"}
        assert within <= drawn.get(room, set()), room
    missing = [name for room, names in drawn.items() for name in names if not [*(SOURCES / room).rglob(name)]]
    assert missing == []


def test_no_folder_and_no_module_has_run_away() -> None:
    """S-002: twelve modules a folder; 350 lines a module, but for the error tree."""
    modules = [path for path in SOURCES.rglob("*.py") if path.name != "__init__.py"]
    folders = Counter(path.parent for path in modules)
    assert [folder for folder, count in folders.items() if count > 12] == []
    long = [path.name for path in modules if len(path.read_text(encoding="utf-8").splitlines()) > 350]
    assert long == ["errors.py"]


def test_the_database_library_is_imported_where_the_design_says_only() -> None:
    """S-004, S-008: in the Postgres driver, in sweeps and beside the embedded server; no other room sends SQL."""
    for path in SOURCES.rglob("*.py"):
        place = path.relative_to(SOURCES).as_posix()
        if any(name.partition(".")[0] in {"psycopg", "psycopg_pool"} for name in imports(path)):
            assert place.startswith(("queue/postgres/", "sweeps/", "embedded/")), place
    assert {path.relative_to(SOURCES).parts[:2] for path in SOURCES.rglob("*.sql")} == {("queue", "postgres")}


def test_the_stores_of_the_contract_are_filled_in_by_both_drivers() -> None:
    """S-008, S-058: at most eight methods each, none of which only raises."""
    stores = {
        node.name: [part.name for part in node.body if isinstance(part, ast.FunctionDef)]
        for folder in ("queue", "queue/stores")
        for path in (SOURCES / folder).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Store")
    }
    assert len(stores) == len(dataclasses.fields(contract.Stores))
    assert {name: len(names) for name, names in stores.items() if not 1 <= len(names) <= 8} == {}
    for driver in ("memory", "postgres"):
        for path in (SOURCES / "queue" / driver).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef) and not isinstance(node.body[-1], ast.Expr):
                    assert "NotImplementedError" not in ast.dump(node), f"{path.name}:{node.name}"


def test_the_job_store_is_the_smallest_that_survives_a_crash() -> None:
    """S-056: six methods; those about rows take many."""
    assert methods(contract.JobStore) == {"enqueue", "claim", "settle", "renew", "record_progress", "stats"}
    for name, many in (("enqueue", "jobs"), ("settle", "settlements"), ("renew", "claims")):
        hint = get_type_hints_of(getattr(contract.JobStore, name))
        assert any("Sequence" in text for text in hint), (name, many)


def get_type_hints_of(function: Any) -> list[str]:
    """Answer a function's annotations as they are written."""
    return [str(annotation) for annotation in inspect.get_annotations(function).values()]


def test_nothing_but_the_call_picks_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-059, S-060, S-117: `connect(driver=)` and no environment; only the root knows both, so nothing moves jobs."""
    monkeypatch.setenv("ROWSWEEP_DRIVER", "postgres")
    app = rs.connect(driver=MemoryDriver(), work=False)
    try:
        assert app.driver.name == "memory"
    finally:
        app.close()
    named = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if any(name.startswith(("rowsweep.queue.postgres", "rowsweep.queue.memory")) for name in imports(path))
        and "queue/" not in path.relative_to(SOURCES).as_posix()
    }
    assert named <= {"__init__.py", *(name for name in named if name.startswith("app/"))}


def test_the_postgres_driver_takes_only_what_it_needs() -> None:
    """S-062: where to connect, the schema, whether a pooler is between, and a clock."""
    taken = set(inspect.signature(rs.PostgresDriver).parameters)
    assert {"schema", "pooler", "clock"} <= taken
    assert taken <= {"connections", "dsn", "schema", "pooler", "clock"}, taken


def test_defaults_of_the_queue_have_one_home() -> None:
    """S-071: the queue's name and the visibility timeout."""
    assert records.DEFAULT_QUEUE == "default"
    assert WorkerOptions().visibility_seconds == records.DEFAULT_VISIBILITY_SECONDS == 30


def test_a_claim_s_options_are_those_of_the_contract() -> None:
    """S-095: what was buried is answered by the pass, for the worker to tell of it."""
    fields = {field.name for field in dataclasses.fields(records.ClaimOptions)}
    assert {"queues", "names", "limit", "worker_id", "drop_exhausted", "busy"} <= fields
    assert any(name.startswith("visibility") for name in fields)
    assert "buried" in {field.name for field in dataclasses.fields(records.ClaimPass)}


def test_a_settlement_is_a_claim_a_duration_and_a_verdict() -> None:
    """S-103: how it is counted follows from the verdict's kind."""
    fields = {field.name for field in dataclasses.fields(verdicts.Settlement)}
    assert {"claim", "verdict"} <= fields
    assert any(name.startswith("duration") for name in fields)
    assert {field.name for field in dataclasses.fields(verdicts.Done)} == {"result"}


def test_outcomes_and_what_is_counted_of_them_have_one_home() -> None:
    """S-121, S-275: seven outcomes; processed, interrupted, abandoned and the counts by outcome in one tally."""
    outcomes = ("completed", "suspended", "retried", "dead-lettered", "dropped", "refused", "interrupted")
    assert get_args(Outcome) == outcomes
    tally = Tally()
    tally.add(get_args(Outcome))
    tally.leave_behind()
    assert (tally.processed, tally.interrupted, tally.abandoned) == (1, 1, 1)
    assert tally.outcomes == dict.fromkeys(outcomes, 1)
    counted = {field.name for field in dataclasses.fields(WorkerStats)}
    assert {"processed", "interrupted", "abandoned", "outcomes"} <= counted


def test_a_worker_s_further_options() -> None:
    """S-277: an id, a clock, the poll, the one seam for timers, a limiter, and whether it drains on a shutdown."""
    options = {field.name for field in dataclasses.fields(WorkerOptions)}
    assert {"id", "poll", "limiter", "drain_on_shutdown"} <= options
    assert {"clock", "timers"} <= set(inspect.signature(Worker).parameters)
    first, second = (Worker(driver=MemoryDriver(), context=lambda: None, drain_on_shutdown=False) for _ in range(2))
    ids = []
    for worker in (first, second):
        worker.tick()
        ids.append(worker.stats.id)
        worker.stop()
    assert None not in ids
    assert ids[0] != ids[1]


def test_one_hook_is_told_of_an_end() -> None:
    """S-411: `on_settled`, and none beside it."""
    hooks = [name for name in (*_fields(JobOptions), *_fields(Retry)) if name.startswith(("on_", "after_", "before_"))]
    assert hooks == ["on_settled"]


def _fields(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def test_rows_become_records_in_one_place() -> None:
    """S-089: of each driver's store; nothing else builds a `Job` or a `Backfill` from a row."""
    for record in ("Job(", "Backfill("):
        makers = [
            path.relative_to(SOURCES / "queue" / "postgres").as_posix()
            for path in (SOURCES / "queue" / "postgres").rglob("*.py")
            if f" {record}" in path.read_text(encoding="utf-8")
        ]
        assert makers == ["stores/records.py"], record


def test_the_ledger_is_part_of_the_contract() -> None:
    """S-197, S-206: its Protocol and statuses; the applied verdict has one module, a run's refusals another."""
    assert set(ledger.BACKFILL_STATUSES) == set(get_args(ledger.BackfillStatus))
    raisers = {
        path.relative_to(SOURCES / "sweeps").as_posix()
        for path in (SOURCES / "sweeps").rglob("*.py")
        if "raise AlreadyApplied" in (text := path.read_text(encoding="utf-8")) or "raise ChangedSinceApplied" in text
    }
    assert raisers == {"launches/gate.py", "refusals.py"}
    assert "progress" in methods(ledger.LedgerStore)


def test_slots_are_taken_renewed_handed_back_and_refused_in_one_room() -> None:
    """S-342."""
    users = {
        path.relative_to(SOURCES / "worker").as_posix()
        for path in (SOURCES / "worker").rglob("*.py")
        if ".acquire(" in (text := path.read_text(encoding="utf-8")) and "SlotStore" in text
    }
    assert users <= {"admission/slots.py"}


def test_the_harnesses_of_these_tests_do_not_ship() -> None:
    """S-018: `rowsweep.testing` is for applications and knows nothing of this suite."""
    for path in SOURCES.rglob("*.py"):
        assert not any(name == "tests" or name.startswith("tests.") for name in imports(path)), path
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    assert wheel["wheel"]["packages"] == ["src/rowsweep"]


NOUNS = (
    "Worker", "Scheduler", "OutboxRelay", "PostgresDriver", "MemoryDriver", "PostgresEventBus", "MemoryEventBus",
    "LeaseLeader", "AdvisoryLockLeader", "SoleLeader", "ConcurrencyLimiter", "Pacer", "StepRunner", "RunSignal",
)  # fmt: skip


@pytest.mark.parametrize("name", NOUNS)
def test_the_nouns_of_the_package_are_public(name: str) -> None:
    """S-016: imported from where everybody imports from, and each a class of that name."""
    assert name in rs.__all__
    assert getattr(rs, name).__name__ == name
    assert inspect.isclass(getattr(rs, name))
