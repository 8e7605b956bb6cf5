"""How a handler goes out: by its module and name where it can, else by value."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from rowsweep.sweeps.executors.orders import ByName, sendable
from tests.sweeps.executors import heavy


def test_a_functions_name_is_followed_to_the_sweep_that_took_it() -> None:
    """N-060: a decorator leaves the sweep under the function's name."""
    function = heavy.decorated.spec.handler  # type: ignore[attr-defined]
    sent = sendable("decorated", function)
    assert isinstance(sent, ByName)
    assert (sent.module, sent.name) == ("tests.sweeps.executors.heavy", "decorated")
    assert sent.found() is function
    assert sendable("plain", heavy.doubled).found() is heavy.doubled  # type: ignore[union-attr]


def test_what_its_module_has_not_goes_by_value() -> None:
    """N-060: a lambda, a function in a function, one that another has replaced."""
    inner = [lambda _batch: None]
    assert sendable("lambda", inner[0]) is inner[0]

    def doubled(batch: object) -> None:
        """Have the name of another function."""

    doubled.__module__, doubled.__qualname__ = "tests.sweeps.executors.heavy", "doubled"
    assert sendable("impostor", doubled) is doubled


@pytest.fixture
def backfill_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that no import finds, as the command line loads them."""
    file = tmp_path / "2024-bands.py"
    file.write_text("def handler(batch):\n    return None\n", encoding="utf-8")
    monkeypatch.delitem(sys.modules, "backfills.2024-bands", raising=False)
    return file


def test_a_module_that_was_loaded_from_a_file_is_loaded_from_it_again(backfill_file: Path) -> None:
    """N-060: also where another module has its name by then."""
    sent = ByName(module="backfills.2024-bands", name="handler", file=str(backfill_file))
    assert sent.found()(None) is None
    assert sys.modules.pop("backfills.2024-bands").__file__ == str(backfill_file)
    sys.modules["backfills.2024-bands"] = ModuleType("backfills.2024-bands")
    assert sent.found()(None) is None
    del sys.modules["backfills.2024-bands"]


def test_a_module_that_is_missing_out_there_is_named(tmp_path: Path) -> None:
    """N-060: with what to do about it."""
    sent = ByName(module="nowhere_to_be_found", name="handler", file=str(tmp_path / "gone.py"))
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found") as caught:
        sent.found()
    assert "install it there too" in caught.value.__notes__[0]
