"""How far a job says it is, in one line."""

from __future__ import annotations

from typing import Any

import pytest

from rowsweep.show.words import values


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        ({"current": 5, "total": 10, "message": "resizing"}, f"{'█' * 10}{'░' * 10} 50 % · 5 of 10 · resizing"),
        ({"current": 1999, "total": 2000, "message": None}, f"{'█' * 19}░ 99 % · 1,999 of 2,000"),
        ({"current": 12, "total": 10, "message": ""}, f"{'█' * 20} 100 % · 12 of 10"),
        ({"current": 0.5, "total": 2.5, "message": None}, f"{'█' * 4}{'░' * 16} 20 % · 0.5 of 2.5"),
        ({"current": 1234, "total": None, "message": "so far"}, "1,234 · so far"),
        ({"current": 3, "total": 0, "message": None}, "3"),
        ({"current": "NaN", "total": 7, "message": "odd"}, "odd"),
        ({"current": 1, "total": "Infinity", "message": None}, "1"),
        (None, ""),
        (7, ""),
    ],
)
def test_progress_is_said_in_one_line_with_a_bar_that_never_passes_its_end(progress: Any, words: str) -> None:
    """D-18: whatever the row holds."""
    assert values.progress(progress) == words


def test_a_message_cannot_move_the_cursor_or_break_the_line() -> None:
    """N-104."""
    assert "\x1b" not in values.progress({"current": 1, "total": None, "message": "a\x1b[2Jb\nc"})
    assert "\n" not in values.progress({"current": 1, "total": None, "message": "a\x1b[2Jb\nc"})
