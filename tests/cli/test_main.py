"""Parsing, exit codes and refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
import pytest
import typer

from rowsweep.cli.everywhere import hoisted
from rowsweep.cli.main import application, main
from rowsweep.errors import InvalidOption
from tests.cli.command_line import CommandLine

SOURCE = Path(__file__).parents[2] / "src" / "rowsweep"
FIXES = [
    "rowsweep jobs ls --json",
    "rowsweep jobs ls --name mail --state running --json",
    "rowsweep jobs ls --limit 200 --json",
    "rowsweep jobs ls --state dead --json",
    "rowsweep jobs ls --state delayed --json",
    "rowsweep jobs show ID",
    "rowsweep jobs show ID --steps",
    "rowsweep jobs cancel ID --json",
    "rowsweep jobs requeue ID",
    "rowsweep jobs requeue ID --from-step charge",
    "rowsweep events publish NAME",
    "rowsweep jobs names",
    "rowsweep jobs pauses",
    "rowsweep jobs stats",
    "rowsweep schema install",
    "rowsweep schema status",
    "rowsweep schema install --outbox-only",
    "rowsweep outbox ls --all --json",
    "rowsweep outbox retry ID",
    "rowsweep relay",
    "rowsweep new backfill NAME",
    "rowsweep ledger --name NAME",
    "rowsweep sweeps ls",
    "rowsweep sweeps launch NAME",
    "rowsweep sweeps resume RUN",
    "rowsweep sweeps rejected RUN",
    "rowsweep sweeps retry-rejected RUN",
    "rowsweep run NAME --force",
]


def leaves(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = [path for path, _ in leaves(typer.main.get_command(application))]


def parse(text: str) -> tuple[str, ...]:
    """Parse a command line without running it; answer the command it means."""
    root: Any = typer.main.get_command(application)
    meant: list[tuple[str, ...]] = []
    for path, command in leaves(root):
        command.callback = lambda path=path, **_: meant.append(path)
    arguments = text.replace("ID", "01998f0a-1b2c-7d3e-8f40-123456789abc").split()[1:]
    root.main(hoisted(arguments), prog_name="rowsweep", standalone_mode=False)
    return meant[0]


def test_the_tree_is_whole() -> None:
    """D-40."""
    assert {" ".join(path) for path in COMMANDS} == {
        "demo", "run", "up", "worker", "scheduler", "relay", "ledger", "watch", "board",
        "tasks ls", "tasks next", "tasks fire",
        "outbox ls", "outbox retry",
        "sweeps rejected", "sweeps retry-rejected", "sweeps verify",
        "sweeps ls", "sweeps show", "sweeps preview", "sweeps launch", "sweeps pause", "sweeps resume", "sweeps cancel",
        "sweeps tune", "sweeps apply", "sweeps watch",
        "jobs ls", "jobs dead", "jobs show", "jobs stats", "jobs counters", "jobs workers", "jobs names",
        "jobs enqueue", "jobs cancel", "jobs requeue", "jobs promote", "jobs rm",
        "jobs pause", "jobs resume", "jobs pauses",
        "events publish",
        "new backfill", "doctor",
        "schema install", "schema print", "schema status",
    }  # fmt: skip


FLAGS = {
    "worker": "--queue --concurrency --drain --pooler --ready-port",
    "scheduler": "--drain --ready-port --pooler",
    "relay": "--drain --ready-port --outbox-dsn --pooler",
    "up": "--queue --concurrency --drain --pooler --ready-port --outbox-dsn",
    "demo": "--rows",
    "run": "--input --force --batch-rows --rate",
    "board": "--once",
    "ledger": "--name --status --kind --limit",
    "jobs ls": "--queue --name --state --tenant --id-prefix --from --to --limit --after --before",
    "jobs show": "--steps",
    "jobs enqueue": "--key --delay --run-at --queue --priority --tenant",
    "jobs cancel": "--reason",
    "jobs requeue": "--from-step --state --queue --name --tenant --all --yes",
    "jobs promote": "--state --queue --name --tenant --all",
    "jobs rm": "--state --queue --name --tenant --all --yes",
    "jobs dead": "--limit",
    "jobs stats": "--limit",
    "jobs counters": "--limit --name --since --tier",
    "jobs workers": "--limit",
    "jobs names": "--limit",
    "jobs pause": "--queue --name --reason",
    "jobs resume": "--queue --name",
    "sweeps ls": "--kind --status --limit",
    "sweeps preview": "--rows --input",
    "sweeps launch": "--input --force --wait --delay",
    "sweeps tune": "--rate --batch-rows --health",
    "sweeps apply": "--dry-run --wait",
    "sweeps pause": "--reason",
    "sweeps resume": "--reason",
    "sweeps cancel": "--reason",
    "sweeps verify": "--timeout",
    "sweeps retry-rejected": "--wait",
    "tasks next": "--count",
    "outbox ls": "--dead --all",
    "outbox retry": "--all",
    "events publish": "--key --ttl",
    "schema install": "--outbox-only",
    "schema print": "--outbox-only",
    "schema status": "--outbox-only",
}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_the_flags_of_the_tree_and_says_what_each_is_for(path: tuple[str, ...]) -> None:
    """D-40, N-122."""
    (command,) = (command for known, command in leaves(typer.main.get_command(application)) if known == path)
    flags = {flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")}
    assert set(FLAGS.get(" ".join(path), "").split()) <= flags
    assert [parameter.name for parameter in command.params if not parameter.help] == []


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """D-40."""
    with pytest.raises(SystemExit) as left:
        main([*path, "--help"])
    assert left.value.code == 0
    out = capsys.readouterr().out
    assert "see rowsweep --help" in " ".join(out.split())
    assert out.startswith(f"Usage: rowsweep {' '.join(path)}")


@pytest.mark.parametrize("fix", FIXES)
def test_the_commands_that_fix_texts_name_exist(fix: str) -> None:
    """S-403."""
    assert " ".join(parse(fix)) in fix


def test_no_fix_text_in_the_source_names_a_command_that_does_not_exist() -> None:
    """S-403, S-432."""
    named = {
        match[1]
        for file in SOURCE.rglob("*.py")
        for match in re.finditer(
            r"rowsweep ((?:jobs|sweeps|schema|events|tasks|new|outbox) [a-z]+(?:-[a-z]+)*|ledger|run|watch|worker"
            r"|scheduler|relay|up)\b",
            file.read_text(),
        )
    }
    assert len(named) > 10
    assert named <= {" ".join(path) for path in COMMANDS}


@pytest.mark.parametrize(
    "line", ["bogus", "sweeps", "jobs show", "jobs show no-id", "ledger --limit many", "ledger --status odd", "--dsn"]
)
def test_wrong_usage_leaves_with_two(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """N-106."""
    with pytest.raises(SystemExit) as left:
        main(line.split())
    assert left.value.code == 2


def test_an_input_that_is_no_json_is_wrong_usage(rowsweep: CommandLine) -> None:
    """N-106."""
    answer = rowsweep("run", "outside", "--input", "{")
    assert answer.code == 2
    assert "--input takes JSON" in answer.err


@pytest.mark.parametrize("error", [InvalidOption("bad\x1b[0m\nworse", fix="do\x07 this", meta={"place": "a.py:3"})])
def test_a_refusal_shows_cause_place_and_fix_on_stderr_and_no_control_sequence(
    error: InvalidOption, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-104, N-106."""
    with patch("rowsweep.cli.session.Session.app", side_effect=error), pytest.raises(SystemExit) as left:
        main(["ledger"])
    said = capsys.readouterr()
    assert left.value.code == 1
    assert said.out == ""
    assert said.err == (
        "error: bad\\x1b[0m\n       worse\n   at: a.py:3\n  fix: do\\x07 this\n code: X_OPTION_INVALID\n"
    )


def test_a_refusal_is_json_where_json_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """N-106."""
    error = InvalidOption("bad", fix="this", meta={"option": "a", "odd": object})
    with patch("rowsweep.cli.session.Session.app", side_effect=error), pytest.raises(SystemExit) as left:
        main(["ledger", "--json"])
    refusal = json.loads(capsys.readouterr().err)
    assert left.value.code == 1
    assert (refusal["code"], refusal["cause"], refusal["fix"]) == ("X_OPTION_INVALID", "bad", "this")
    assert refusal["meta"]["option"] == "a"


def test_a_database_that_cannot_be_reached_is_refused_with_its_fix(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-106, N-109."""
    with pytest.raises(SystemExit) as left:
        main(["ledger", "--dsn", "postgresql://ann:secret@localhost:1/none", "--json"])
    said = capsys.readouterr()
    assert left.value.code == 1
    assert json.loads(said.err)["code"] == "X_DRIVER_UNAVAILABLE"
    assert "secret" not in said.err + said.out


def test_missing_tables_are_refused_with_the_command_that_makes_them(
    folder: Path, dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """S-403."""
    with pytest.raises(SystemExit) as left:
        main(["ledger", "--dsn", dsn])
    assert left.value.code == 1
    assert "fix: rowsweep schema install" in capsys.readouterr().err


def test_a_fix_says_which_flags_its_command_needs_too(
    folder: Path, dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """S-432: typed as it stands it would go to another database."""
    refused = CommandLine(dsn, capsys)("ledger")
    assert "fix: rowsweep schema install\n       with the --dsn of this command\n" in refused.err
    both = CommandLine(dsn, capsys)("ledger", "--schema=elsewhere")
    assert "with the --dsn and --schema of this command" in both.err


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert re.fullmatch(r"rowsweep \d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize("command", ["worker", "scheduler", "relay", "up"])
def test_a_command_that_serves_refuses_a_database_without_the_tables(rowsweep: CommandLine, command: str) -> None:
    """N-026: at once, with the command that installs them, instead of logging every look at them."""
    with psycopg.connect(rowsweep.dsn, autocommit=True) as connection:
        connection.execute("create schema if not exists bare")
    refused = rowsweep(command, "--schema", "bare", "--json")
    assert refused.code == 1
    told = json.loads(refused.err.splitlines()[-1])
    assert told["code"] == "X_SCHEMA_MISSING"
    assert "schema install" in told["fix"]
