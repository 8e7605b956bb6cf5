"""`rowsweep new backfill`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from rowsweep.cli.commands.new import backfill_text
from rowsweep.cli.loading import load_app
from rowsweep.cli.main import main
from rowsweep.sweeps.registry import get_sweep
from tests.cli.command_line import CommandLine


def new(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as left:
        main(["new", "backfill", *arguments])
    return left.value.code


def test_the_file_states_the_rules_and_how_to_preview(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """S-195, S-187."""
    assert new("fill-my-column") == 0
    text = (folder / "backfills" / "fill_my_column.py").read_text()
    assert "at-least-once" in text
    assert "ONE transaction" in text
    assert "batch.key" in text
    assert "rowsweep sweeps preview fill-my-column" in text
    assert "backfills/fill_my_column.py" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("2026 Überträge", "backfill_2026_bertr_ge"),
        ("class", "backfill_class"),
        ('a"b\\c', "a_b_c"),
        ("表", "backfill"),
        ("rs", "backfill_rs"),
    ],
)
def test_any_name_makes_a_module_that_declares_it(folder: Path, name: str, module: str) -> None:
    """S-195."""
    assert new(name) == 0
    assert load_app() == [f"backfills.{module}"]
    assert get_sweep(name).name == name


def test_the_commands_it_names_can_be_typed_as_they_stand(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """S-195."""
    assert new("order totals") == 0
    text = (folder / "backfills" / "order_totals.py").read_text()
    assert "rowsweep sweeps preview 'order totals' --rows 10" in text
    assert "rowsweep run 'order totals'\n" in text
    assert "rowsweep sweeps preview 'order totals'\n" in capsys.readouterr().out


def test_a_file_that_is_there_is_left_as_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert new("a", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"file": "backfills/a.py", "name": "a"}
    (folder / "backfills" / "a.py").write_text("mine")
    assert new("a") == 1
    assert "backfills/a.py exists" in capsys.readouterr().err
    assert (folder / "backfills" / "a.py").read_text() == "mine"


def test_a_name_that_no_sweep_may_have_is_refused_before_anything_is_written(folder: Path) -> None:
    assert new("a:b") == 1
    assert not (folder / "backfills").exists()


def test_the_file_runs_as_it_stands(rowsweep: CommandLine, folder: Path, dsn: str) -> None:
    """S-195."""
    (folder / "backfills" / "app.py").unlink()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create table my_table (id bigint primary key, my_column integer)")
        connection.execute("insert into my_table select n from generate_series(1, 10) n")
        assert rowsweep("new", "backfill", "fill-in").code == 0
        assert rowsweep("sweeps", "preview", "fill-in", "--rows", "2", "--json").json[0]["my_column_after"] == 0
        assert rowsweep("run", "fill-in").code == 0
        assert connection.execute("select count(*) from my_table where my_column = 0").fetchone() == (10,)


def test_the_file_passes_the_type_checker_and_the_linter(tmp_path: Path) -> None:
    """S-195."""
    file = tmp_path / "fill_in.py"
    file.write_text(backfill_text("fill-in"))
    for command in (["mypy", "--strict"], ["ruff", "check", "--isolated"], ["ruff", "format", "--check", "--isolated"]):
        done = subprocess.run(
            [sys.executable, "-m", *command, str(file)],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[3],
        )
        assert done.returncode == 0, done.stdout + done.stderr
