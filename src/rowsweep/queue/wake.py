"""How a commit made elsewhere is heard: the channel, its words, and the session a driver lends for it."""

from __future__ import annotations

from typing import Final, Protocol

CHANNEL: Final = "rowsweep_wake"
SOON_SECONDS: Final = 30.0
PROOF: Final = "*proof:"
OUTBOX: Final = "*outbox"


class WakeSource(Protocol):
    """One session that hears the channel. A word is the name of a queue with something to claim; others begin with `*`.

    One thread listens; `interrupt` may be called from any.
    """

    def hear(self, seconds: float | None) -> list[str]:
        """Wait for words, at most that long, and answer those that came; raises DriverUnavailable where it is lost."""

    def say(self, word: str) -> None:
        """Send a word to everybody who hears the channel, this session too; raises DriverUnavailable."""

    def interrupt(self) -> None:
        """Make a `hear` under way answer at once."""

    def close(self) -> None:
        """Hear nothing more."""
