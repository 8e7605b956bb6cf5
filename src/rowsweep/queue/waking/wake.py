"""The wake of one process: one listening session that is trusted only while it is proven."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Final, Protocol

from rowsweep.clock import real_monotonic
from rowsweep.errors import TimedOut
from rowsweep.queue.wake import CHANNEL, OUTBOX, PROOF
from rowsweep.telemetry.events import emit

if TYPE_CHECKING:
    from rowsweep.queue.wake import WakeSource

PROOF_WITHIN_SECONDS: Final = 2.0
PROOF_EVERY_SECONDS: Final = 60.0
# Looks are at most this far apart, so a proof that one of them carries is never late.
_RIDES_AFTER_SECONDS: Final = 45.0
_OWN_AFTER_SECONDS: Final = 90.0
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0


class WakeListener(Protocol):
    """Who is woken."""

    def wake(self, queue: str) -> None:
        """Something may be claimed from a queue, or was staged in the outbox: the word is `*outbox` then."""

    def trust(self, *, is_proven: bool) -> None:
        """The wake is proven, or no longer."""


class Wake:
    """Hear of commits until it is closed; a session that is lost or silent is replaced, with growing pauses.

    Proven is a session that heard a word it was sent within 2 s; it is asked anew each minute, by a word that rides on
    a look where there is one.
    """

    def __init__(self, driver: object) -> None:
        self._driver = driver
        self._id = uuid.uuid4().hex[:12]
        self._lock = threading.Lock()
        self._listeners: list[WakeListener] = []
        self._closing = threading.Event()
        self._source: WakeSource | None = None
        self._is_proven = False
        self._is_reported_lost = False
        self._words = 0
        self._asked_at = float("-inf")
        self._awaited: int | None = None
        self._heard = 0

    @property
    def is_proven(self) -> bool:
        """Say whether commits made elsewhere are being heard."""
        return self._is_proven

    def start(self) -> None:
        """Start hearing."""
        threading.Thread(target=self._run, name="rowsweep-wake", daemon=True).start()

    def add(self, listener: WakeListener) -> None:
        """Wake a listener from now on."""
        with self._lock:
            self._listeners.append(listener)
        if self._is_proven:
            listener.trust(is_proven=True)

    def remove(self, listener: WakeListener) -> bool:
        """Wake a listener no more; answers whether there is still another."""
        with self._lock:
            self._listeners.remove(listener)
            return bool(self._listeners)

    def close(self) -> None:
        """End the session; waits for nothing."""
        self._closing.set()
        self._interrupt()

    def due_proof(self) -> str | None:
        """Answer the word that the next look should say, None while no proof is due."""
        with self._lock:
            if not self._is_proven or self._awaited or real_monotonic() - self._asked_at < _RIDES_AFTER_SECONDS:
                return None
            return self._new_word()

    def proof_sent(self, word: str) -> None:
        """Note that a look which said the word has been answered: from now on it must be heard."""
        with self._lock:
            self._await_word(self._number_of(word))
        self._interrupt()

    def _interrupt(self) -> None:
        source = self._source
        if source is not None:
            source.interrupt()

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._closing.is_set():
            was_proven = False
            try:
                source = self._open()
                if source is None:
                    return
                try:
                    self._listen(source)
                finally:
                    was_proven = self._is_proven
                    self._drop(source)
            except Exception as error:  # noqa: BLE001 - whatever it is, polling goes on and the session is made anew
                self._lost(error)
            pause = _FIRST_PAUSE if was_proven else pause
            if self._closing.wait(pause):
                return
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _open(self) -> WakeSource | None:
        listen = getattr(self._driver, "listen", None)
        self._source = None if listen is None else listen()
        return self._source

    def _drop(self, source: WakeSource) -> None:
        self._source = None
        with self._lock:
            self._awaited = None
        self._set_proven(is_proven=False)
        source.close()

    def _listen(self, source: WakeSource) -> None:
        """Hear words until this is closed; raises where the session is lost, or does not hear its proof."""
        self._prove(source)
        while not self._closing.is_set():
            for word in dict.fromkeys(source.hear(self._patience())):
                self._take(word)
            self._check(source)

    def _take(self, word: str) -> None:
        if word.startswith(f"{PROOF}{self._id}:"):
            with self._lock:
                self._heard = max(self._heard, self._number_of(word))
                if self._awaited is not None and self._heard >= self._awaited:
                    self._awaited = None
                    self._asked_at = real_monotonic()
            self._set_proven(is_proven=True)
        elif word == OUTBOX or not word.startswith("*"):
            for listener in list(self._listeners):
                listener.wake(word)

    def _check(self, source: WakeSource) -> None:
        with self._lock:
            waited = real_monotonic() - self._asked_at
            is_missed = self._awaited is not None and waited > PROOF_WITHIN_SECONDS
        if is_missed:
            raise TimedOut(
                f"A word sent on {CHANNEL} was not heard within {PROOF_WITHIN_SECONDS:g} s.",
                fix="a direct connection instead of a transaction pooler, or rs.connect(…, pooler=True)",
                meta={"channel": CHANNEL},
            )
        if self._awaited is None and waited > _OWN_AFTER_SECONDS:
            self._prove(source)

    def _prove(self, source: WakeSource) -> None:
        with self._lock:
            word = self._new_word()
        source.say(word)
        with self._lock:
            self._await_word(self._number_of(word))

    def _new_word(self) -> str:
        self._words += 1
        return f"{PROOF}{self._id}:{self._words}"

    def _number_of(self, word: str) -> int:
        return int(word.rpartition(":")[2])

    def _await_word(self, number: int) -> None:
        """Wait for a word, or a later one: two whose looks overlap may each have said one."""
        self._asked_at = real_monotonic()
        self._awaited = None if self._heard >= number else number

    def _patience(self) -> float:
        with self._lock:
            limit = _OWN_AFTER_SECONDS if self._awaited is None else PROOF_WITHIN_SECONDS
            return max(self._asked_at + limit - real_monotonic(), 0.0) + 0.01

    def _set_proven(self, *, is_proven: bool) -> None:
        if self._is_proven == is_proven:
            return
        self._is_proven = is_proven
        if is_proven:
            self._is_reported_lost = False
            emit("jobs.wake.proven", channel=CHANNEL)
        for listener in list(self._listeners):
            listener.trust(is_proven=is_proven)

    def _lost(self, error: Exception) -> None:
        """Report a loss once, however often the session cannot be made anew."""
        if not self._is_reported_lost:
            self._is_reported_lost = True
            emit("jobs.wake.lost", channel=CHANNEL, error=error)
