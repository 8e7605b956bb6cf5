"""Exports on the command line: listed, previewed, launched, run and shown like any sweep."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

import rowsweep as rs
from tests.cli.command_line import CommandLine, write_app

APP = """
import rowsweep as rs

archive = rs.export_rows("archive", rs.Rows("things", where="id > 10"), "out", part_rows=50)
"""


@pytest.fixture
def things(rowsweep: CommandLine, dsn: str) -> CommandLine:
    """The command line over a table of a hundred things."""
    write_app(Path.cwd(), APP)
    with psycopg.connect(dsn) as connection:
        connection.execute("create table things (id int primary key, name text)")
        connection.execute("insert into things select i, 'thing ' || i from generate_series(1, 100) i")
    return rowsweep


def test_an_export_is_listed_previewed_run_and_in_the_ledger(things: CommandLine) -> None:
    """D-40, N-091: as any sweep; a second run into the same place is refused by name."""
    (entry,) = things("sweeps", "ls", "--kind", "export", "--json").json
    assert (entry["name"], entry["kind"], entry["state"], entry["to"]) == ("archive", "export", "pending", "out")
    rows = things("sweeps", "preview", "archive", "--rows", "2", "--json").json
    assert rows == [{"id": 11, "name": "thing 11"}, {"id": 12, "name": "thing 12"}]
    assert not Path("out").exists()
    assert things("run", "archive").code == 0
    assert rs.read_export("out", verify=True).collect()["id"].to_list() == list(range(11, 101))
    (row,) = things("ledger", "--kind", "export", "--json").json
    assert (row["name"], row["kind"], row["status"], row["rows"]) == ("archive", "export", "done", 90)
    shown = things("sweeps", "show", "archive").out
    assert "90 row" in shown
    assert f"exported to  {Path('out').absolute()}" in shown
    refused = things("run", "archive", "--json")
    assert refused.code == 1
    assert json.loads(refused.err)["code"] == "X_EXPORT_DESTINATION_TAKEN"
    assert len(things("ledger", "--kind", "export", "--json").json) == 1


def test_the_shards_of_an_export_are_worked_by_one_command_and_shown_each(things: CommandLine) -> None:
    """D-7, N-088: `run` works as many jobs as are declared; listed and shown with each one's own figures."""
    write_app(Path.cwd(), APP.replace("part_rows=50", "part_rows=10, shards=3"))
    (entry,) = things("sweeps", "ls", "--json").json
    assert entry["shards"] == 3
    assert things("run", "archive").code == 0
    assert rs.read_export("out", verify=True).collect()["id"].to_list() == list(range(11, 101))
    shown = things("sweeps", "show", "archive", "--json").json
    assert [shard["status"] for shard in shown["shards"]] == ["done"] * 3
    assert sum(shard["rows"] for shard in shown["shards"]) == 90
    assert "3 shards" in things("sweeps", "show", "archive").out
