"""Hold a pass while its database is unwell, slow it down while that is strained, and keep account of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from rowsweep.clock import real_monotonic

if TYPE_CHECKING:
    from rowsweep.sweeps.batch.sizing import BatchSize
    from rowsweep.sweeps.health.signals import Verdict
    from rowsweep.sweeps.health.watch import Watch

FIRST_HOLD_SECONDS: Final = 1.0
LONGEST_HOLD_SECONDS: Final = 30.0
_LONGEST_PAUSE_SECONDS: Final = 1.0
_ACCOUNT_SECONDS: Final = 5.0


class Governed(Protocol):
    """The pass, as its governor sees it."""

    def wait_for_health(self, seconds: float, why: str, *, rests: bool) -> None:
        """Wait without holding anything; ends at once, and raises, on abort, drain, pause and cancel.

        Where it `rests` the time is none at work.
        """

    def note_health(self, waiting_for: str | None, governed: Mapping[str, Any]) -> None:
        """Show in the ledger what is waited for, and add to its account of what the governor did."""

    def log_health(self, event: str, verdict: Verdict) -> None:
        """Log that it is held or slowed down from now on."""


class Governor:
    """Stand before each batch of a pass.

    A signal beyond its `hold` limit holds the pass: it waits 1 s, doubling to 30 s, until none is. One beyond its
    `slow` limit halves the batch size once, lets it not grow while that lasts, and puts a pause as long as the last
    batch took (1 s at most) before each.
    """

    def __init__(self, watch: Watch, governed: Governed) -> None:
        self._watch = watch
        self._pass = governed
        self._level = "ok"
        self._last_seconds = 0.0
        self._has_let_go_on = False
        self._time: dict[str, dict[str, float]] = {"held": {}, "slowed": {}}
        self._shown: dict[str, str] | None = None
        self._noted_at = real_monotonic()
        self.is_closed = False

    def goes_on(self) -> bool:
        """Whether the next batch may begin at once: nothing holds or slows, and no function is to be asked before it.

        Where it may, none is asked: an application's function is no guest in an open transaction.
        """
        self._has_let_go_on = self._level == "ok" and not self._watch.is_due
        return self._has_let_go_on

    def before_batch(self, size: BatchSize) -> None:
        """Wait for as long as anything holds, and a little while anything slows down."""
        verdicts, seconds, has_held = self._watch.look(asks=not self._has_let_go_on), FIRST_HOLD_SECONDS, False
        self._has_let_go_on = False
        while verdicts and verdicts[0].level == "hold" and not self.is_closed:
            self._enter(verdicts[0], "hold", size)
            self._note(verdicts, waiting_for=verdicts[0].words)
            self._waited("held", verdicts[0], seconds)
            verdicts, seconds, has_held = self._watch.look(), min(seconds * 2, LONGEST_HOLD_SECONDS), True
        if self.is_closed:
            self._settle()
            return
        first = verdicts[0] if verdicts else None
        is_slow = first is not None and first.level == "slow"
        size.may_grow = not is_slow
        if first is not None and is_slow:
            self._enter(first, "slow", size)
            self._waited("slowed", first, min(self._last_seconds, _LONGEST_PAUSE_SECONDS))
        else:
            self._level = "ok"
        if has_held or self._is_due(verdicts):
            self._note(verdicts, waiting_for=None)

    def after_batch(self, rows: int, seconds: float) -> None:
        """Note a committed batch."""
        self._last_seconds = seconds
        self._watch.times.done(rows, seconds)

    def close(self) -> None:
        """Leave nothing unaccounted; it stands before no batch any more."""
        self.is_closed = True
        self._settle()

    def _settle(self) -> None:
        if self._time["held"] or self._time["slowed"]:
            self._note(None, waiting_for=None)

    def _enter(self, verdict: Verdict, level: str, size: BatchSize) -> None:
        if self._level == level:
            return
        if self._level == "ok":
            size.ease()
        self._level = level
        self._pass.log_health("sweeps.held" if level == "hold" else "sweeps.slowed", verdict)

    def _waited(self, how: str, verdict: Verdict, seconds: float) -> None:
        began = real_monotonic()
        try:
            self._pass.wait_for_health(seconds, verdict.words, rests=how == "held")
        finally:
            account = self._time[how]
            account[verdict.name] = account.get(verdict.name, 0.0) + real_monotonic() - began

    def _is_due(self, verdicts: list[Verdict]) -> bool:
        """Write when a level changed, and now and then what time went by."""
        if {verdict.name: verdict.level for verdict in verdicts} != self._shown:
            return True
        return bool(self._time["slowed"]) and real_monotonic() - self._noted_at >= _ACCOUNT_SECONDS

    def _note(self, verdicts: list[Verdict] | None, *, waiting_for: str | None) -> None:
        governed: dict[str, Any] = {
            how: {name: round(seconds, 3) for name, seconds in account.items()} for how, account in self._time.items()
        }
        if verdicts is not None:
            governed["signals"] = {verdict.name: _shown(verdict) for verdict in verdicts}
            self._shown = {verdict.name: verdict.level for verdict in verdicts}
        self._time = {"held": {}, "slowed": {}}
        self._noted_at = real_monotonic()
        self._pass.note_health(waiting_for, governed)


def _shown(verdict: Verdict) -> dict[str, str]:
    return {"is": verdict.level} if verdict.level == "ok" else {"is": verdict.level, "says": verdict.words}
