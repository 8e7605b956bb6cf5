"""Waits that are short enough for a test."""

from __future__ import annotations

import pytest

from rowsweep.sweeps.health import governor, sampler, watch


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold for moments instead of seconds, and look as often."""
    monkeypatch.setattr(governor, "FIRST_HOLD_SECONDS", 0.05)
    monkeypatch.setattr(governor, "LONGEST_HOLD_SECONDS", 0.05)
    monkeypatch.setattr(sampler, "EVERY_SECONDS", 0.05)
    monkeypatch.setattr(watch, "_ASK_SECONDS", 0.02)
