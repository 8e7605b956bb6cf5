"""What a pass does for the database's sake: be held or slowed down by its governor, and say so in the ledger."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rowsweep.clock import real_monotonic
from rowsweep.sweeps.health.choice import chosen
from rowsweep.sweeps.health.governor import Governor
from rowsweep.sweeps.health.sampler import sampling
from rowsweep.sweeps.health.signals import Signal, Verdict
from rowsweep.sweeps.health.watch import Watch
from rowsweep.sweeps.passes.recovering import RecoveringPass
from rowsweep.sweeps.passes.steered import Done
from rowsweep.sweeps.run import host
from rowsweep.telemetry.events import emit

if TYPE_CHECKING:
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.handle import Sweep


class HeedingPass(RecoveringPass):
    """Heed the signals and functions of its sweep, as they are declared and as an operator tuned them."""

    def __init__(self, sweep: Sweep[Any], ctx: RunCtx, step: str) -> None:
        super().__init__(sweep, ctx, step)
        self._governor: Governor | None = None
        self._sampling = ExitStack()

    @abstractmethod
    def _tables(self) -> frozenset[tuple[str, str]]:
        """Answer the tables it works on, by schema and name."""

    def _backends(self) -> list[int]:
        """Answer the backends that hold its locks, as of now."""
        pid = self._held.backend_pid
        return [] if pid is None else [pid]

    def _govern(self) -> None:
        """Heed from now on what is declared or asked for, and nothing else."""
        self._end_governing()
        checks = chosen(self._sweep.heeded_on(host()), self._options.get("health"))
        if not checks:
            self._size.may_grow = True
            return
        sampler = None
        if any(isinstance(check, Signal) for check in checks):
            place = self._sweep.place_on(host())
            sampler = self._sampling.enter_context(sampling(place, self._backends))
        self._governor = Governor(Watch(checks, sampler, self._tables()), self)

    def _end_governing(self) -> None:
        governor, self._governor = self._governor, None
        self._sampling.close()
        if governor is not None:
            governor.close()

    def _pace(self) -> None:
        """Wait until the rate, and then the database's health, let the next batch start."""
        super()._pace()
        while (governor := self._governor) is not None:
            governor.before_batch(self._size)
            if governor is self._governor:
                self._pacer.begin()
                return

    def _goes_on(self) -> bool:
        return super()._goes_on() and (self._governor is None or self._governor.goes_on())

    def _committed(self, done: Done, rows: int, milliseconds: float) -> None:
        super()._committed(done, rows, milliseconds)
        if self._governor is not None:
            self._governor.after_batch(rows, milliseconds / 1000)

    def _tune(self, options: Mapping[str, Any] | None) -> bool:
        was = self._options.get("health")
        has_changed = super()._tune(options)
        if has_changed and self._options.get("health") != was:
            self._govern()
        return has_changed

    def wait_for_health(self, seconds: float, why: str, *, rests: bool) -> None:
        """Wait without holding anything; ends at once when steered or tuned."""
        began = real_monotonic()
        try:
            self._wait(seconds, why, until_tuned=True)
        finally:
            if rests:
                self._progress.rested(real_monotonic() - began)

    def note_health(self, waiting_for: str | None, governed: Mapping[str, Any]) -> None:
        """Show what is waited for, and add to the account of what the governor did."""
        self._show_waiting(waiting_for, governed)

    def log_health(self, event: str, verdict: Verdict) -> None:
        """Log that it is held or slowed down from now on."""
        told = {
            "sweep": self._sweep.name,
            "run_id": str(self._ctx.run_id),
            "signal": verdict.name,
            "reason": verdict.words,
        }
        if event == "sweeps.held":
            emit("sweeps.held", **told)
        else:
            emit("sweeps.slowed", **told)
