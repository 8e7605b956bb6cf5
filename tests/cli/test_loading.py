"""Which modules declare the application."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from rowsweep.cli.loading import load_app
from rowsweep.errors import InvalidDeclaration, InvalidOption
from rowsweep.sweeps.registry import get_sweep
from tests.cli.command_line import write_app

ONE = 'import rowsweep as rs\n\n{name} = rs.backfill("{name}", rows=rs.Rows("items"), set={{"total": "1"}})\n'


def test_without_a_word_the_backfills_folder_is_loaded_in_order(folder: Path) -> None:
    """D-40."""
    write_app(folder, ONE.format(name="b"), "b")
    write_app(folder, ONE.format(name="a"), "a")
    write_app(folder, "raise RuntimeError", "_shared")
    assert load_app() == ["backfills.a", "backfills.b"]
    assert get_sweep("a").origin.module == "backfills.a"


def test_nothing_at_all_is_nothing(folder: Path) -> None:
    assert load_app() == []


def test_a_file_need_not_have_an_identifier_for_a_name(folder: Path) -> None:
    write_app(folder, ONE.format(name="a"), "2026-01-a")
    assert load_app() == ["backfills.2026-01-a"]


def test_pyproject_names_the_modules(folder: Path) -> None:
    """D-40."""
    write_app(folder, "raise RuntimeError", "unwanted")
    (folder / "shop").mkdir()
    (folder / "shop" / "sweeps.py").write_text(ONE.format(name="a"))
    (folder / "pyproject.toml").write_text('[tool.rowsweep]\napp = "shop.sweeps"\n')
    assert load_app() == ["shop.sweeps"]


def test_modules_files_and_folders_can_be_given(folder: Path) -> None:
    """D-40."""
    (folder / "shop").mkdir()
    (folder / "shop" / "one.py").write_text(ONE.format(name="one"))
    (folder / "shop" / "two.py").write_text(ONE.format(name="two"))
    (folder / "three.py").write_text(ONE.format(name="three"))
    assert load_app(["shop.one"]) == ["shop.one"]
    assert load_app(["shop/two.py"]) == ["shop.two"]
    assert load_app(["./three.py"]) == ["three"]
    assert load_app(["shop/"]) == ["shop.one", "shop.two"]


def test_one_file_can_import_another(folder: Path) -> None:
    write_app(folder, ONE.format(name="first"), "first")
    write_app(folder, "from backfills.first import first\n\nassert first.name == 'first'\n", "second")
    load_app()
    assert importlib.import_module("backfills.first") is sys.modules["backfills.first"]


def test_a_file_that_was_changed_is_loaded_anew(folder: Path) -> None:
    """N-006."""
    write_app(folder, ONE.format(name="a"), "a")
    load_app()
    former = get_sweep("a")
    load_app()
    assert get_sweep("a") is not former


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("x = 1\nimport no_such_module\n", 2, "ModuleNotFoundError: No module named 'no_such_module'"),
        ("x = 1\n\nx = (\n", 3, "SyntaxError"),
        ("def fail():\n    raise KeyError('k')\n\n\nfail()\n", 2, "KeyError: 'k'"),
    ],
)
def test_a_module_that_does_not_import_is_refused_with_file_and_line(
    folder: Path, text: str, line: int, why: str
) -> None:
    write_app(folder, text, "bad")
    with pytest.raises(InvalidOption) as refused:
        load_app()
    assert why in refused.value.cause
    assert refused.value.meta["place"] == f"backfills/bad.py:{line}"
    assert "backfills.bad" not in sys.modules


def test_what_a_declaration_refuses_keeps_its_code_and_gains_its_place(folder: Path) -> None:
    write_app(folder, '\n\nimport rowsweep as rs\n\nrs.backfill("a:b", rows=rs.Rows("t"), set={"a": "1"})\n', "bad")
    with pytest.raises(InvalidDeclaration) as refused:
        load_app()
    assert refused.value.meta["place"] == "backfills/bad.py:5"


@pytest.mark.parametrize("app", ["no.such.module", "no/such.py", "missing/"])
def test_a_module_that_is_not_there_is_refused(folder: Path, app: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        load_app([app])
    assert app.rstrip("/") in refused.value.cause
    assert "--app" in refused.value.fix


@pytest.mark.parametrize("text", ["[tool.rowsweep]\napp = 7\n", "[tool.rowsweep\n"])
def test_a_pyproject_that_cannot_be_read_is_refused(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(text)
    with pytest.raises(InvalidOption) as refused:
        load_app()
    assert refused.value.meta["place"] == "pyproject.toml"
