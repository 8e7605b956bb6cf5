"""`rowsweep sweeps apply` over a real database, worked by a real worker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import CommandLine, fill, write_app

CHAIN = """
import rowsweep as rs

ITEMS = rs.Rows("items")
ONCE = rs.Retry(attempts=1)
a_last = rs.backfill("a-last", rows=ITEMS, set={"writes": "writes + 1"}, requires=("b-first",))
b_first = rs.backfill("b-first", rows=ITEMS, set={"total": "price * 2"})
elsewhere = rs.backfill("elsewhere", rows=ITEMS, set={"total": "1"}, environments=("production",))


@rs.backfill("given", rows=ITEMS, input=int)
def given(batch: rs.Batch) -> None: ...
"""


@pytest.fixture
def items(rowsweep: CommandLine, dsn: str, folder: Path) -> CommandLine:
    fill(dsn, 500)
    write_app(folder, CHAIN)
    return rowsweep


def actions(answer: object) -> dict[str, str]:
    """Answer what was done about each."""
    assert isinstance(answer, list)
    return {entry["name"]: entry["action"] for entry in answer}


def test_what_would_be_applied_is_said_in_the_order_of_its_requirements(items: CommandLine) -> None:
    """D-40, N-071: `requires` first; nothing is launched by a dry run."""
    answer = items("sweeps", "apply", "--dry-run", "--json")
    assert answer.code == 0
    assert [entry["name"] for entry in answer.json] == ["b-first", "a-last", "elsewhere", "given"]
    assert actions(answer.json) == {"a-last": "wait", "b-first": "launch", "elsewhere": "elsewhere", "given": "by hand"}
    assert items("ledger", "--json").json == []
    shown = items("sweeps", "apply", "--dry-run").out
    assert "requires b-first" in shown
    assert "for production; this is development" in shown


def test_without_waiting_only_what_nothing_holds_is_launched(items: CommandLine) -> None:
    """D-40: the rest is left for the next time, which attaches to what is live."""
    first = items("sweeps", "apply", "--json")
    assert (first.code, actions(first.json)["b-first"]) == (0, "launch")
    again = items("sweeps", "apply", "--json")
    assert actions(again.json) | {"given": ""} == {
        "a-last": "wait",
        "b-first": "live",
        "elsewhere": "elsewhere",
        "given": "",
    }
    assert [run["name"] for run in items("ledger", "--json").json] == ["b-first"]


@pytest.mark.slow
def test_waiting_applies_all_of_them_once(items: CommandLine, dsn: str) -> None:
    """D-40: each is launched when what it requires is done; the second time there is nothing to do."""
    with items.process("worker") as worker:
        answer = items("sweeps", "apply", "--wait", "--json")
        assert worker.poll() is None
    assert answer.code == 0, answer
    assert {entry["name"]: entry["status"] for entry in answer.json} == {
        "a-last": "done", "b-first": "done", "elsewhere": None, "given": None,
    }  # fmt: skip
    again = items("sweeps", "apply", "--wait", "--json")
    assert (again.code, actions(again.json)["a-last"], actions(again.json)["b-first"]) == (0, "applied", "applied")


def test_one_that_changed_since_is_left_and_said(items: CommandLine, folder: Path) -> None:
    """D-4: another version is never applied on top unasked."""
    assert items("run", "b-first").code == 0
    write_app(folder, CHAIN.replace("price * 2", "price * 3"))
    answer = items("sweeps", "apply", "--json")
    assert (answer.code, actions(answer.json)["b-first"]) == (1, "changed")


def test_a_failure_leaves_what_requires_it(items: CommandLine, folder: Path) -> None:
    """N-071: and the command says so with its code."""
    write_app(
        folder, CHAIN.replace("price * 2", "price / (price - price)").replace("ITEMS, set", "ITEMS, retry=ONCE, set")
    )
    with items.process("worker"):
        answer = items("sweeps", "apply", "--wait", "--json")
    found = {entry["name"]: (entry["action"], entry["status"]) for entry in answer.json}
    assert (found["b-first"], found["a-last"]) == (("launch", "failed"), ("wait", None))
    assert answer.code == 1


def test_sweeps_that_require_each_other_are_refused(items: CommandLine, folder: Path) -> None:
    write_app(folder, CHAIN.replace('"price * 2"}', '"price * 2"}, requires=("a-last",)'))
    refused = items("sweeps", "apply", "--json")
    assert refused.code == 1
    assert "a-last → b-first → a-last" in refused.err


def test_one_that_another_process_applied_meanwhile_counts_as_applied(
    items: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-40: two deploys at once; the rest is still launched."""
    from rowsweep.sweeps.launches import applying

    assert items("run", "b-first").code == 0
    known = applying.application_of

    def stale(sweep: Any) -> Any:
        found = known(sweep)
        return replace(found, action="launch", why="not applied here yet") if sweep.name == "b-first" else found

    monkeypatch.setattr(applying, "application_of", stale)
    answer = items("sweeps", "apply", "--json")
    assert (answer.code, actions(answer.json)["b-first"], actions(answer.json)["a-last"]) == (0, "applied", "launch")
