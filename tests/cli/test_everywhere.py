"""The flags of every command."""

from __future__ import annotations

import pytest

from rowsweep.cli.everywhere import asks_for_json, hoisted


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("sweeps ls --json", "--json sweeps ls"),
        ("sweeps --json ls --app a --app=b", "--json --app a --app=b sweeps ls"),
        ("--dsn x ledger --name y", "--dsn x ledger --name y"),
        ("ledger --dsn", "--dsn"),
        ("run a --input 1 -- --json", "run a --input 1 -- --json"),
        ("jobs ls --schema s --env e --no-color", "--schema s --env e --no-color jobs ls"),
    ],
)
def test_the_flags_of_every_command_may_come_after_its_name(given: str, expected: str) -> None:
    """D-40."""
    assert hoisted(given.split()) == expected.split()


@pytest.mark.parametrize(("given", "expected"), [("ledger --json", True), ("ledger", False), ("x -- --json", False)])
def test_refusals_are_json_where_json_is_asked_for(given: str, expected: bool) -> None:
    """N-106."""
    assert asks_for_json(given.split()) is expected
