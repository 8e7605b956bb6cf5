"""The fixtures of the tests about rows that fail by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from rowsweep.queue.postgres.connections import SweepConnection
from rowsweep.sweeps.poison import work


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tries of a failing batch follow each other at once."""
    monkeypatch.setattr(work, "BETWEEN_TRIES_SECONDS", 0.0)


@pytest.fixture
def savepoints(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that begins a savepoint on a sweep's connection, as it is sent."""
    sent: list[str] = []
    execute = SweepConnection.execute

    def counting(self: SweepConnection, query: Any, *given: Any, **more: Any) -> Any:
        if str(query).startswith("savepoint"):
            sent.append(str(query))
        return execute(self, query, *given, **more)

    monkeypatch.setattr(SweepConnection, "execute", counting)
    return sent
