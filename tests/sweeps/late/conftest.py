"""Looks at open transactions follow each other quickly here, and are shown from the first on."""

from __future__ import annotations

import pytest

from rowsweep.sweeps.late import look


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "_LONGEST_SECONDS", 0.05)
