"""Threads of the package that a test leaves running: they would work, and log, inside other tests."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

# A thread that was told to end may be in a statement, whose cancel is tried for 5 s.
LEFT_SECONDS = 10.0
_kept: set[threading.Thread] = set()


def keep_running() -> None:
    """Let what runs now live on: a fixture of the session, which a test asked for in its midst, owns it."""
    _kept.update(_ours())


@contextmanager
def none_left() -> Iterator[None]:
    """Fail where a thread that the block started outlives it."""
    before = set(threading.enumerate())
    yield
    give_up_at = time.monotonic() + LEFT_SECONDS
    while left := [thread for thread in _ours() if thread not in before | _kept]:
        if time.monotonic() > give_up_at:
            raise AssertionError("\n".join(["threads were left running:", *map(_shown, left)]))
        left[0].join(0.05)


def _ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("rowsweep-")]


def _shown(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return f"{thread.name}\n{''.join(traceback.format_stack(frame)[-6:])}"
