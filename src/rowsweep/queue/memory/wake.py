"""Hearing of what this process's own calls make due."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rowsweep.queue.memory.state import State


class MemoryWake:
    """Hear the words that the driver's calls say, as they say them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._condition = threading.Condition()
        self._words: list[str] = []
        self._is_rung = False
        state.listeners.append(self._take)

    def hear(self, seconds: float | None) -> list[str]:
        """Wait for words, at most that long, and answer those that came."""
        with self._condition:
            self._condition.wait_for(lambda: self._words or self._is_rung, seconds)
            self._is_rung = False
            words, self._words = self._words, []
            return words

    def say(self, word: str) -> None:
        """Send a word to everybody who hears."""
        self._state.say(word)

    def interrupt(self) -> None:
        """Make a `hear` under way answer at once."""
        with self._condition:
            self._is_rung = True
            self._condition.notify_all()

    def close(self) -> None:
        """Hear nothing more."""
        self._state.listeners.remove(self._take)

    def _take(self, word: str) -> None:
        with self._condition:
            if word not in self._words:
                self._words.append(word)
            self._condition.notify_all()
