"""`rowsweep schema` over a real database."""

from __future__ import annotations

from tests.cli.command_line import CommandLine


def test_the_schema_is_installed_once_and_its_status_told(rowsweep: CommandLine) -> None:
    """S-072, S-403."""
    assert "nothing to do" in rowsweep("schema", "install").out
    status = rowsweep("schema", "status", "--json")
    assert (status.code, status.json["is_current"], status.json["version"]) == (0, True, status.json["latest"])


def test_a_schema_that_is_not_installed_is_a_finding(rowsweep: CommandLine) -> None:
    """N-106."""
    answer = rowsweep("schema", "status", "--schema", "nowhere")
    assert answer.code == 1
    assert "rowsweep schema install" in answer.out


def test_the_sql_of_an_install_is_printed_without_connecting(rowsweep: CommandLine) -> None:
    """S-017."""
    answer = rowsweep("schema", "print", "--dsn", "postgresql://localhost:1/none")
    assert answer.code == 0
    assert "create table" in answer.out
