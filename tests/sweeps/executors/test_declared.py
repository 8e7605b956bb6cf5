"""What may be said of an executor, and what is refused before anything runs."""

from __future__ import annotations

import importlib.util
import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import InvalidDeclaration, InvalidOption
from tests.sweeps.executors import heavy
from tests.sweeps.executors.conftest import two_processes
from tests.sweeps.field import Field

FORKED = multiprocessing.get_context("fork")


def declared(**given: Any) -> Any:
    """Declare a sweep with these options."""
    options: dict[str, Any] = {"rows": heavy.ORDERS, "executor": two_processes}
    return rs.backfill("declared", heavy.doubled, **(options | given))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"executor": 4}, "executor must be a concurrent.futures.Executor or a function"),
        ({"executor": ProcessPoolExecutor(1, mp_context=FORKED)}, "spawned, not forked"),
        ({"atomic": False}, "executor must be left out with atomic=False"),
        ({"source": "postgresql://elsewhere/x"}, "executor must be left out with source="),
        ({"executor": None, "ahead": 4}, "ahead must be given with executor="),
    ],
)
def test_what_no_executor_can_do_is_refused_where_it_is_declared(given: Any, says: str) -> None:
    """N-060, N-066: by the option's name, with a fix."""
    with pytest.raises(InvalidDeclaration, match=says) as caught:
        declared(**given)
    assert caught.value.meta["field"] in ("executor", "ahead")


def test_expressions_and_an_executor_exclude_each_other() -> None:
    """N-065: with set= the database does all the work."""
    given: Any = {"set": {"total": "qty"}, "executor": two_processes}
    with pytest.raises(InvalidDeclaration, match="executor must be left out with set="):
        rs.backfill("declared", rows=heavy.ORDERS, **given)


@pytest.mark.parametrize("ahead", [0, 257, 1.5])
def test_ahead_is_a_count(ahead: Any) -> None:
    """N-058: a fixed number of pages."""
    with pytest.raises(InvalidOption, match="ahead"):
        declared(ahead=ahead)


@pytest.mark.parametrize(
    ("executor", "shown"),
    [(None, None), (two_processes, "two_processes"), (ThreadPoolExecutor(1), "ThreadPoolExecutor")],
)
def test_a_declaration_names_its_executor_and_its_checksum_does_not(executor: Any, shown: str | None) -> None:
    """D-2: where a handler runs decides nothing of its effect."""
    bare = declared(executor=None)
    sweep = declared(executor=executor)
    assert sweep.describe()["executor"] == shown
    assert sweep.checksum == bare.checksum


def test_a_function_that_makes_a_forking_pool_is_refused_when_it_is_made(field: Field) -> None:
    """N-060: a fork of a process with threads may hang at any lock."""
    field.orders(2)
    with pytest.raises(InvalidDeclaration, match="spawned, not forked"):
        declared(executor=lambda: ProcessPoolExecutor(1, mp_context=FORKED)).preview(1)
    with pytest.raises(InvalidDeclaration, match=r"answers a concurrent\.futures\.Executor"):
        declared(executor=lambda: None).preview(1)


def local() -> Callable[[rs.Batch], Any]:
    """Make a function that no module has."""
    return lambda batch: batch.frame.select("id", total="qty")


def test_a_function_that_no_module_has_is_refused_without_cloudpickle(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-072: at the launch, before a job is enqueued, with both ways out."""
    field.orders(2)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "cloudpickle" else found(name))
    sweep = rs.backfill("local", local(), rows=heavy.ORDERS, executor=two_processes)
    with pytest.raises(InvalidDeclaration, match="where no other process can import it") as caught:
        sweep.launch()
    assert "move it to a module" in caught.value.fix
    assert field.queue_sql("select from {x_jobs}") == []


def test_a_function_over_what_cannot_be_pickled_is_refused_at_the_launch(field: Field) -> None:
    """N-072: with the reason."""
    field.orders(2)
    lock = threading.Lock()

    def locking(batch: rs.Batch) -> None:
        with lock:
            batch.frame.height  # noqa: B018

    with pytest.raises(InvalidDeclaration, match="its handler cannot be pickled: TypeError"):
        rs.backfill("locking", locking, rows=heavy.ORDERS, executor=two_processes).launch()
