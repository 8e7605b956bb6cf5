"""The interpreter that has the peers, at the versions of `constraints-peers.txt`."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

_PINS = Path(__file__).parent.with_name("constraints-peers.txt")


@cache
def interpreter() -> Path:
    """Answer `$ROWSWEEP_BENCH_PEERS`, else an interpreter made beside this one, and made again when the pins change."""
    given = os.environ.get("ROWSWEEP_BENCH_PEERS")
    if given is not None:
        return Path(given)
    home = Path(sys.prefix) / "peers"
    python, made_of = home / "bin" / "python", home / "made-of.txt"
    if not made_of.exists() or made_of.read_text() != _PINS.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
        command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "-r", str(_PINS)]
        subprocess.run(command, check=True)
        made_of.write_text(_PINS.read_text())
    return python
