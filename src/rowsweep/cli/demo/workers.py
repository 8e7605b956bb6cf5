"""Run rowsweep's own commands as processes of their own, as a person would, and kill one of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rowsweep.clock import real_monotonic

if TYPE_CHECKING:
    from rowsweep.cli.output import Output
    from rowsweep.cli.stopping import Signals
    from rowsweep.sweeps.snapshot import Snapshot

_LOOK_SECONDS: Final = 0.03
_SHOW_CURSOR: Final = "\x1b[?25h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """A worker process that is no more, and what it had committed."""

    pid: int
    percent: float
    rows: int


class Stopped(Exception):
    """A signal ended the demo; `name` is the signal's."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Commands:
    """Start commands of rowsweep with the demo's flags; what they write goes where the demo's own words go."""

    def __init__(self, output: Output, signals: Signals, *, shown: Sequence[str], hidden: Sequence[str]) -> None:
        self._output = output
        self._signals = signals
        self._shown = list(shown)
        self._hidden = list(hidden)

    def run(self, *arguments: str) -> int:
        """Show the command, run it to its end, and answer its exit code. Raises Stopped where a signal came."""
        return self._wait(self._start(arguments), lambda: False)

    def run_and_kill(self, *arguments: str, at_percent: float, look: Callable[[], Snapshot | None]) -> Killed | None:
        """Show and start the command, and kill it once the run is that far; None where it ended before that."""
        seen: list[Snapshot] = []

        def is_due() -> bool:
            snapshot = look()
            if snapshot is None or snapshot.percent is None or not at_percent <= snapshot.percent < 100:
                return False
            seen.append(snapshot)
            return True

        process = self._start(arguments)
        self._wait(process, is_due)
        if not seen or process.poll() is not None:
            process.wait()
            return None
        process.kill()
        process.wait()
        if self._output.is_terminal:
            sys.stdout.write(f"{_SHOW_CURSOR}\n")
            sys.stdout.flush()
        last = look() or seen[-1]
        return Killed(pid=process.pid, percent=last.percent or 0.0, rows=last.rows)

    def _start(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        self._output.say(f"$ rowsweep {' '.join([*arguments, *self._shown])}", style="bold cyan")
        sys.stdout.flush()
        flags = [] if self._output.is_coloured else ["--no-color"]
        command = [sys.executable, "-m", "rowsweep.cli", *flags, *arguments, *self._shown, *self._hidden]
        return subprocess.Popen(command, stdout=sys.stderr if self._output.is_json else None, env=dict(os.environ))

    def _wait(self, process: subprocess.Popen[bytes], is_due: Callable[[], bool]) -> int:
        """Wait for the process to end, or for the moment that is due; a signal is handed on."""
        while process.poll() is None:
            if is_due():
                return 0
            self._signals.wait(_LOOK_SECONDS)
            if self._signals.name is not None:
                self._hand_on(process, self._signals.name)
        return process.returncode

    def _hand_on(self, process: subprocess.Popen[bytes], name: str) -> None:
        # A Ctrl-C at the terminal reaches the child by itself: twice would stop it at once.
        if name == "SIGTERM":
            process.send_signal(signal.SIGTERM)
        deadline_at = real_monotonic() + 60
        while process.poll() is None and real_monotonic() < deadline_at:
            self._signals.wait(_LOOK_SECONDS)
        raise Stopped(name)
