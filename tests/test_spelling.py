"""A keyword that something public does not have: refused by its name, with the near miss."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import InvalidDeclaration, InvalidOption
from rowsweep.spelling import spelled

# What the package makes and hands out; nobody calls it.
ANSWERS = {
    "App", "Batch", "Ctx", "EnqueueResult", "Event", "Export", "JobHandle", "Purge", "Run", "RunSignal", "Settled",
    "Snapshot", "SoleLeader", "StepRunner", "Sweep", "TaskHandle",
}  # fmt: skip
# What screens its keywords by itself, once it has what it must be given.
GIVEN: dict[str, dict[str, Any]] = {
    "MemoryEventBus": {},
    "OutboxRelay": {"driver": None},
    "Scheduler": {"driver": None},
    "Worker": {"driver": None, "context": dict},
    "backfill": {"name": "a", "rows": rs.Rows("orders"), "set": {"n": "1"}},
    "export_rows": {"name": "a", "rows": rs.Rows("orders"), "to": "out"},
    "jobs": {},
    "purge": {"name": "a", "targets": list},
}


def callables() -> list[str]:
    """Answer what is public and takes anything by name."""
    found = [name for name in rs.__all__ if callable(getattr(rs, name)) and name not in ANSWERS]
    kept = [name for name in found if not issubclass(type(getattr(rs, name)), type(BaseException)) or name in GIVEN or
            not issubclass(getattr(rs, name), BaseException)]  # fmt: skip
    return [name for name in kept if inspect.signature(getattr(rs, name)).parameters and name != "job"]


@pytest.mark.parametrize("name", callables())
def test_nothing_public_answers_a_mistyped_keyword_by_a_bare_type_error(name: str, connected_in_memory: None) -> None:
    """S-012, D-37: a coded refusal that names the keyword."""
    declared = getattr(rs, name)
    with pytest.raises((InvalidOption, InvalidDeclaration)) as refused:
        declared(**GIVEN.get(name, {}), mistyped_so=1)
    assert "'mistyped_so'" in refused.value.cause
    assert refused.value.fix


@pytest.fixture
def connected_in_memory() -> Any:
    """Connect, since what looks at jobs asks for an app before all else."""
    app = rs.connect(driver=rs.MemoryDriver(), work=False)
    yield
    app.close()


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: rs.Rows("orders", colums=["id"]), "columns"),  # type: ignore[call-arg]
        (lambda: rs.Rows(tabel="orders"), "table"),  # type: ignore[call-arg]
        (lambda: rs.connect(dns="postgresql://shop"), "dsn"),  # type: ignore[call-arg]
        (lambda: rs.Retry(atempts=3), "attempts"),  # type: ignore[call-arg]
        (lambda: rs.task(crom="0 9 * * *"), "cron"),  # type: ignore[call-arg]
        (lambda: rs.older_than("events", "at", day=90), "days"),  # type: ignore[call-arg]
        (lambda: rs.purge("old", targests=list), "targets"),  # type: ignore[call-arg]
        (lambda: rs.export_rows("new", row=rs.Rows("orders"), to="out"), "rows"),  # type: ignore[call-arg]
        (lambda: rs.Worker(driver=rs.MemoryDriver(), context=dict, concurency=2), "concurrency"),
        (lambda: rs.publish_event("paid", paylod=1), "payload"),  # type: ignore[call-arg]
    ],
)
def test_the_keyword_that_was_probably_meant_is_named(call: Any, meant: str) -> None:
    """D-37."""
    with pytest.raises(InvalidOption) as refused:
        call()
    assert refused.value.fix == f"Did you mean {meant!r}?"


def test_what_is_called_rightly_is_called_as_it_is() -> None:
    """S-012: its signature, its name and its own errors too."""

    @spelled
    def add(first: int, *, second: int = 1) -> int:
        """Add."""
        return first + second

    assert (add(1, second=2), add.__name__, add.__doc__) == (3, "add", "Add.")
    assert list(inspect.signature(add).parameters) == ["first", "second"]
    assert list(inspect.signature(rs.Rows).parameters)[:2] == ["table", "columns"]
    with pytest.raises(TypeError, match="first"):
        add(second=2)  # type: ignore[call-arg]
