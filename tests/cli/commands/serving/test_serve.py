"""What a command that serves does before it starts."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rowsweep.cli.main import main
from rowsweep.cli.session import Session

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


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (["worker", "--concurrency", "some"], 2, "--concurrency takes N"),
        (["worker", "--concurrency", "1000000"], 1, "concurrency"),
        (["worker", "--visibility", "soon"], 1, "visibility"),
        (["worker", "--queue", ""], 1, "queue"),
        (["worker", "--drain", "soon"], 1, "drain"),
        (["up", "--concurrency", "some"], 2, "--concurrency takes N"),
        (["up", "--concurrency", "a=1000000"], 1, "concurrency"),
        (["up", "--visibility", "0s"], 1, "visibility"),
        (["up", "--drain", "10"], 1, "drain"),
        (["scheduler", "--drain", "soon"], 1, "drain"),
        (["relay", "--drain", "soon"], 1, "drain"),
        (["run", "totals", "--visibility", "soon"], 1, "visibility"),
    ],
)
def test_a_flag_that_cannot_work_is_refused_before_anything_is_connected_to(
    given: list[str], code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-106: no server is started for it, no run launched, no application imported."""
    monkeypatch.setattr(Session, "app", lambda *_, **__: pytest.fail("connected"))
    monkeypatch.setattr(Session, "load", lambda *_, **__: pytest.fail("imported"))
    with pytest.raises(SystemExit) as left:
        main(given)
    assert left.value.code == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["worker", "scheduler", "relay", "up"])
def test_a_port_that_is_taken_is_refused_before_anything_is_connected_to(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-106, N-108."""

    @contextmanager
    def connected(*_: Any, **__: Any) -> Iterator[None]:
        yield pytest.fail("connected")

    monkeypatch.setattr(Session, "app", connected)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SystemExit) as left:
            main([command, "--ready-port", str(taken.getsockname()[1])])
    assert left.value.code == 1
    assert "cannot be served" in capsys.readouterr().err
