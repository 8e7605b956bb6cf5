"""What a command that serves does before it starts."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from rowsweep.cli.main import main

_SAID = """
import gc, json
from rowsweep.cli.commands.serving.serve import spare_collector
gc.set_threshold({given}, 10, 10)
spare_collector()
print(json.dumps([gc.get_freeze_count() > 1000, list(gc.get_threshold()[:2])]))
"""


@pytest.mark.parametrize(("given", "then"), [(700, 10_000), (50_000, 50_000), (0, 0)])
def test_a_process_that_serves_collects_garbage_rarely(given: int, then: int) -> None:
    """What is loaded is left out; a threshold that is higher already stays, and so does a collector that is off."""
    done = subprocess.run([sys.executable, "-c", _SAID.format(given=given)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [True, [then, 10]]


@pytest.mark.parametrize("command", ["worker", "scheduler", "relay", "up"])
def test_whatever_serves_can_do_so_through_a_pooler(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-023, D-40: also what leads and what publishes."""
    seen: list[bool] = []

    def note(*_: Any, how: Any, **__: Any) -> None:
        seen.append(how.pooler)

    monkeypatch.setattr(f"rowsweep.cli.commands.serving.{command}.serve", note)
    for given in ((), ("--pooler",)):
        with pytest.raises(SystemExit) as left:
            main([command, *given])
        assert left.value.code == 0
    assert seen == [False, True]
