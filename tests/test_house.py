"""The house rules that only the sources themselves can prove."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rowsweep.errors

SOURCES = Path(rowsweep.errors.__file__).parent
CLOCKS = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}
STAR = re.compile(r"\b(?:select(?:\s+(?:all|distinct))?|returning)\s+(?:[\w\"]+\s*\.\s*)?\*", re.IGNORECASE)


def python_files() -> list[Path]:
    return sorted(SOURCES.rglob("*.py"))


def name_of(node: ast.expr) -> str:
    """Answer `a.b.c` for attributes of names, nothing for anything else."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def clock_readings(tree: ast.AST) -> Iterator[int]:
    """Find the lines that read a clock: by attribute, or by a name imported from `time`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = name_of(node.value).rpartition(".")[2]
            if node.attr in CLOCKS.get(owner, ()):
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            if CLOCKS["time"] & {alias.name for alias in node.names}:
                yield node.lineno
        elif isinstance(node, ast.Import) and any(a.name in CLOCKS and a.asname for a in node.names):
            yield node.lineno


def unruly_threads(tree: ast.AST) -> Iterator[int]:
    """Find the lines that start a thread that is no daemon, has no `rowsweep-` name, or belongs to a pool."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = name_of(node.func).rpartition(".")[2]
        if called in {"ThreadPoolExecutor", "Timer"} or (called == "Thread" and not _is_house_thread(node)):
            yield node.lineno


def _is_house_thread(call: ast.Call) -> bool:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    daemon, name = given.get("daemon"), given.get("name")
    if isinstance(name, ast.JoinedStr):
        name = name.values[0]
    is_named = isinstance(name, ast.Constant) and str(name.value).startswith("rowsweep-")
    return is_named and isinstance(daemon, ast.Constant) and daemon.value is True


def places(find: Callable[[ast.AST], Iterator[int]], exempt: set[str]) -> list[str]:
    return [
        f"{path.relative_to(SOURCES)}:{line}"
        for path in python_files()
        if str(path.relative_to(SOURCES)) not in exempt
        for line in find(ast.parse(path.read_text(encoding="utf-8")))
    ]


def test_time_is_read_only_in_the_clock() -> None:
    """S-009."""
    assert places(clock_readings, exempt={"clock.py"}) == []
    assert list(clock_readings(ast.parse((SOURCES / "clock.py").read_text(encoding="utf-8"))))


@pytest.mark.parametrize(
    "code",
    [
        "datetime.now(UTC)",
        "datetime.datetime.utcnow()",
        "date.today()",
        "time.time()",
        "time.monotonic_ns()",
        "read = time.perf_counter",
        "from time import monotonic",
        "from time import sleep, time as t",
        "import time as t",
        "import datetime as dt",
    ],
)
def test_the_search_for_clock_readings_finds_every_form(code: str) -> None:
    """S-009: the search can fail."""
    assert list(clock_readings(ast.parse(code))) == [1]


def test_the_search_for_clock_readings_lets_the_injected_clock_be() -> None:
    """S-009."""
    for code in ("clock.now()", "self._clock.monotonic()", "time.sleep(1)", "datetime.fromtimestamp(1, UTC)"):
        assert list(clock_readings(ast.parse(code))) == []


def test_every_thread_is_a_daemon_with_a_name_of_the_house() -> None:
    """N-005."""
    assert places(unruly_threads, exempt=set()) == []


def test_the_search_for_threads_finds_those_that_break_the_rule() -> None:
    """N-005: the search can fail."""
    for code in (
        "Thread(target=f)",
        "threading.Thread(target=f, daemon=True)",
        'threading.Thread(target=f, daemon=True, name="worker")',
        'threading.Thread(target=f, daemon=False, name="rowsweep-x")',
        "threading.Timer(1, f)",
        "concurrent.futures.ThreadPoolExecutor()",
    ):
        assert list(unruly_threads(ast.parse(code))) == [1]
    assert not list(unruly_threads(ast.parse('Thread(target=f, daemon=True, name=f"rowsweep-{x}")')))


def test_no_statement_reads_or_returns_every_column() -> None:
    """S-084."""
    files = [*python_files(), *sorted(SOURCES.rglob("*.sql"))]
    assert [str(path.relative_to(SOURCES)) for path in files if STAR.search(path.read_text(encoding="utf-8"))] == []


def test_the_search_for_every_column_finds_each_form() -> None:
    """S-084: the search can fail."""
    for text in ("select *", "SELECT\n  *", "returning *", "select distinct *", "select j.*", 'returning "j" . *'):
        assert STAR.search(text)
    for text in ("select count(*)", "select a * b", "returning id", "selects *"):
        assert not STAR.search(text)
