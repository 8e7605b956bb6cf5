"""One wake for each driver of this process, however many workers there are over it."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from rowsweep.queue.waking.wake import Wake

if TYPE_CHECKING:
    from rowsweep.queue.waking.wake import WakeListener

_lock = threading.Lock()
_wakes: dict[tuple[int, int], Wake] = {}


class Subscription:
    """A worker's part in its process's wake: the first one starts the session, the last one ends it.

    A forked child has a wake of its own.
    """

    def __init__(self, driver: object, listener: WakeListener) -> None:
        self._driver = driver
        self._listener = listener
        self._wake: Wake | None = None

    @property
    def is_proven(self) -> bool:
        """Say whether commits made elsewhere are being heard."""
        return self._wake is not None and self._wake.is_proven

    def start(self) -> None:
        """Be woken from now on."""
        with _lock:
            if self._wake is not None:
                return
            key = (os.getpid(), id(self._driver))
            found = _wakes.get(key)
            self._wake = _wakes[key] = found or Wake(self._driver)
            self._wake.add(self._listener)
            if found is None:
                self._wake.start()

    def stop(self) -> None:
        """Be woken no more; waits for nothing."""
        with _lock:
            wake, self._wake = self._wake, None
            if wake is None or wake.remove(self._listener):
                return
            for key in [key for key, kept in _wakes.items() if kept is wake]:
                del _wakes[key]
        wake.close()

    def due_proof(self) -> str | None:
        """Answer the word that the next look should say, None while no proof is due."""
        wake = self._wake
        return None if wake is None else wake.due_proof()

    def proof_sent(self, word: str) -> None:
        """Note that a look which said the word has been answered."""
        wake = self._wake
        if wake is not None:
            wake.proof_sent(word)
