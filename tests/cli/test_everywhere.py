"""The flags of every command."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowsweep.cli.everywhere import asks_for_json, hoisted
from rowsweep.cli.main import main


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


@pytest.mark.slow
def test_a_schema_typed_wrong_is_named_and_only_an_install_makes_a_second_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-026, N-110: over the embedded server, whose tables come by themselves."""

    def code(*arguments: str) -> object:
        with pytest.raises(SystemExit) as left:
            main(list(arguments))
        return left.value.code

    assert code("ledger") == 0
    capsys.readouterr()
    assert code("ledger", "--schema", "typo") == 1
    said = capsys.readouterr().err
    assert "in this database public has them" in said
    assert "fix: --schema public, or rowsweep --schema typo schema install for a second queue\n code" in said
    assert (folder / ".rowsweep" / "pg").is_dir()
    assert code("schema", "install", "--schema", "typo") == 0
    assert code("ledger", "--schema", "typo") == 0
