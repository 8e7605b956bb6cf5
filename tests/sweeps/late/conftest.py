"""What the tests of late commits share."""

from __future__ import annotations

import pytest

from rowsweep.sweeps.poison import work


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try a failing batch again without a pause."""
    monkeypatch.setattr(work, "BETWEEN_TRIES_SECONDS", 0.0)
