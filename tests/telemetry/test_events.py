"""Events: the table is the one of the behaviour, and every event that the sources log is in it."""

from __future__ import annotations

import ast
import itertools
import logging
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import rowsweep.errors
from rowsweep.errors import InvariantBroken, UnknownJob
from rowsweep.telemetry.events import ERROR_FIELDS, EVENTS, emit, error_fields

SOURCES = Path(rowsweep.errors.__file__).parent
BEHAVIOUR = Path(__file__).parents[2] / "docs" / "behaviour.md"
FIRST_LINE = "| event | level | fields |"
NOTHING = "\N{EN DASH}"

SOMETIMES = {"jobs.worker.tick-failed": {"queue"}, "jobs.scheduler.tick-failed": {"task"}}
"""Fields that an occurrence need not have: what failed was not one queue's, or not one task's."""


def documented() -> list[tuple[str, str, str]]:
    """Read the table of D-31: a cell may name several events, whose levels and fields are then apart by a slash."""
    lines = BEHAVIOUR.read_text(encoding="utf-8").splitlines()
    start = next(at for at, line in enumerate(lines) if line == FIRST_LINE) + 2
    rows: list[tuple[str, str, str]] = []
    for line in itertools.takewhile(lambda line: line.startswith("|"), lines[start:]):
        names, level, fields = (cell.strip() for cell in line.strip("|").split("|"))
        first, *others = re.findall(r"`([^`]+)`", names)
        whole = [first, *(f"{first.rpartition('.')[0]}.{other}" for other in others)]
        levels, split = apart(level, len(whole)), apart(fields, len(whole))
        rows += zip(whole, levels, completed(split), strict=True)
    return rows


def apart(cell: str, events: int) -> list[str]:
    parts = [part.strip() for part in cell.split(" / ")]
    return parts if len(parts) == events else [cell] * events


def completed(fields: list[str]) -> list[str]:
    """`and x` adds to what the event before it has; a dash is no field."""
    made: list[str] = []
    for cell in fields:
        made.append(f"{made[-1]}, {cell[4:]}" if cell.startswith("and ") else "" if cell == NOTHING else cell)
    return made


def names_in(fields: str) -> list[str]:
    """Answer the fields of a cell, without the words around them."""
    return list(re.findall(r"[a-z_]+", re.sub(r"\([^)]*\)|where .*", "", fields)))


@pytest.mark.parametrize("row", documented(), ids=lambda row: str(row[0]))
def test_every_event_has_its_level_and_its_fields(row: tuple[str, str, str]) -> None:
    """D-31, S-424, S-425, S-426, S-427."""
    name, level, fields = row
    event = EVENTS[name]
    usual, _, special = level.partition(";")
    assert logging.getLevelName(event.level) == usual.upper()
    assert (event.error_when is not None) is (special.strip() == "error when final")
    assert list(event.fields) == names_in(fields)


def test_there_is_no_other_event() -> None:
    """D-31."""
    assert set(EVENTS) == {name for name, _, _ in documented()}


def test_the_name_is_the_message_and_the_fields_ride_on_the_record(caplog: pytest.LogCaptureFixture) -> None:
    """N-112."""
    with caplog.at_level(logging.INFO, logger="rowsweep"):
        emit("jobs.wake.proven", channel="x_jobs")
        emit("sweeps.batch", index=1)
    (record,) = caplog.records
    assert (record.name, record.getMessage(), record.levelno) == ("rowsweep", "jobs.wake.proven", logging.INFO)
    assert record.__dict__["fields"] == {"channel": "x_jobs"}
    assert record.funcName == "test_the_name_is_the_message_and_the_fields_ride_on_the_record"


def test_a_failed_attempt_is_an_error_when_it_is_final(caplog: pytest.LogCaptureFixture) -> None:
    """D-31, S-131."""
    emit("jobs.attempt.failed", job="a", stop_reason=None)
    emit("jobs.attempt.failed", job="a", stop_reason="attempts")
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.ERROR]


def test_an_error_adds_its_code_cause_and_fix(caplog: pytest.LogCaptureFixture) -> None:
    """D-31, S-012."""
    emit("jobs.worker.tick-failed", error=UnknownJob("There is none.", fix="rowsweep jobs names"), queue="q")
    fields = caplog.records[0].__dict__["fields"]
    assert {name: fields[name] for name in ERROR_FIELDS} == {
        "error": "UnknownJob: X_JOB_UNKNOWN: There is none. Fix: rowsweep jobs names",
        "code": "X_JOB_UNKNOWN",
        "cause": "There is none.",
        "fix": "rowsweep jobs names",
    }


def test_an_error_is_rendered_without_its_passwords_whatever_it_is() -> None:
    """S-132, N-109, S-138."""

    class Rude(Exception):
        def __str__(self) -> str:
            raise SystemExit

    assert error_fields(Rude()) == {"error": "Rude (its text raises SystemExit)"}
    assert error_fields(KeyError()) == {"error": "KeyError"}
    assert error_fields("LEASE_LAPSED_FINAL_ATTEMPT") == {"error": "LEASE_LAPSED_FINAL_ATTEMPT"}
    assert error_fields(OSError("postgresql://a:secret@h/s")) == {"error": "OSError: postgresql://a:***@h/s"}


@pytest.mark.parametrize(
    ("event", "field", "fix"),
    [("jobs.wake.proved", "channel", "Did you mean 'jobs.wake.proven'"), ("jobs.wake.proven", "chanel", "use channel")],
)
def test_an_event_or_field_outside_the_table_is_refused(event: str, field: str, fix: str) -> None:
    """D-31."""
    with pytest.raises(InvariantBroken) as refused:
        emit(event, **{field: "x"})
    assert refused.value.fix.startswith(fix)


def test_a_log_handler_that_raises_never_reaches_the_caller(capsys: pytest.CaptureFixture[str]) -> None:
    """N-112."""

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("exporter is down")

    logger, handler = logging.getLogger("rowsweep"), Broken()
    logger.addHandler(handler)
    try:
        emit("jobs.wake.lost", channel="x_jobs")
    finally:
        logger.removeHandler(handler)
    assert "exporter is down" in capsys.readouterr().err


class Emission(NamedTuple):
    """One call of `emit`: where, and the fields it gives, None where they cannot be read off the source."""

    place: str
    call: ast.Call
    fields: set[str] | None


def literals_in(around: ast.AST) -> dict[str, set[str]]:
    """Answer the keys of each literal dict that a function gives a name."""
    return {
        target.id: {str(key.value) for key in value.keys if isinstance(key, ast.Constant)}
        for node in ast.walk(around)
        if isinstance(node, ast.Assign)
        for target, value in pairs_of(node)
        if isinstance(target, ast.Name) and isinstance(value, ast.Dict)
    }


def fields_of(call: ast.Call, around: ast.AST) -> set[str] | None:
    """Answer the fields of a call, those of a `**` from the literal dict of that name in the function around it."""
    literals = literals_in(around)
    found: set[str] = set()
    for keyword in call.keywords:
        if keyword.arg is not None:
            found.add(keyword.arg)
        elif isinstance(keyword.value, ast.Name) and keyword.value.id in literals:
            found |= literals[keyword.value.id]
        else:
            return None
    return found - {"error"}


def pairs_of(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Answer what is assigned to what, one by one."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield target, node.value


@cache
def emit_calls() -> tuple[Emission, ...]:
    """Answer every call of `emit`, and every line that the ground floor logs by hand: it may import no telemetry."""
    return tuple(read_emit_calls())


def read_emit_calls() -> Iterator[Emission]:
    for path in sorted(SOURCES.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if path.name == "events.py":
            continue
        emits = any(
            isinstance(node, ast.ImportFrom) and node.module == "rowsweep.telemetry.events" for node in ast.walk(tree)
        )
        for around in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
            for node in [node for node in ast.walk(around) if isinstance(node, ast.Call)]:
                place = f"{path.relative_to(SOURCES)}:{node.lineno}"
                if emits and isinstance(node.func, ast.Name) and node.func.id == "emit":
                    yield Emission(place, node, fields_of(node, around))
                elif isinstance(node.func, ast.Attribute) and ast.unparse(node.func) == "_logger.error":
                    yield Emission(place, node, literals_in(around).get("fields"))


def event_names(node: ast.expr) -> list[str]:
    if isinstance(node, ast.IfExp):
        return [*event_names(node.body), *event_names(node.orelse)]
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def test_every_event_that_the_sources_emit_is_in_the_table_with_its_fields() -> None:
    """D-31: so that the refusal of an unknown event is met here and never in a running worker."""
    wrong = []
    for place, call, fields in emit_calls():
        names = event_names(call.args[0])
        if not names:
            wrong.append(f"{place}: the event's name must be written out")
        wrong += [f"{place}: {name} is not in the table" for name in names if name not in EVENTS]
        if fields is None:
            wrong.append(f"{place}: the fields must be written out, or be a literal dict of the same function")
            continue
        wrong += [
            f"{place}: {name} lacks {sorted(lacking)}"
            for name in names
            if name in EVENTS and (lacking := set(EVENTS[name].fields) - fields - SOMETIMES.get(name, set()))
        ]
        known = [set(EVENTS[name].fields) for name in names if name in EVENTS]
        wrong += [f"{place}: {names[0]} has no field {sorted(fields - of)}" for of in known if fields - of]
    assert wrong == []


def test_every_event_that_the_sources_emit_is_provoked_by_a_test() -> None:
    """D-31: some test in another file names it."""
    elsewhere = [file for file in Path(__file__).parents[1].rglob("*.py") if file != Path(__file__)]
    said = "".join(file.read_text(encoding="utf-8") for file in elsewhere)
    emitted = {name for _, call, _ in emit_calls() for name in event_names(call.args[0])}
    assert [name for name in sorted(emitted) if name not in said] == []


def test_every_event_of_the_table_is_emitted_somewhere() -> None:
    """D-31, S-424, S-425, S-426, S-427: none is promised that never comes."""
    emitted = {name for _, call, _ in emit_calls() for name in event_names(call.args[0])}
    assert set(EVENTS) - emitted == set()
