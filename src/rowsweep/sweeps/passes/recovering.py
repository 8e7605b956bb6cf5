"""What a pass does about errors: do again what only the moment refused, smaller, from where the pass really stands."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from rowsweep.clock import real_monotonic
from rowsweep.errors import Interrupted, LeaseLost
from rowsweep.jobs.attempts.classify import Stop, decide
from rowsweep.sweeps.batch.closing import CheckpointMoved
from rowsweep.sweeps.batch.connection import CommitUnknown
from rowsweep.sweeps.batch.patience import (
    Patience,
    database_error,
    is_lost_connection,
    is_passing,
    is_without_room,
    name_of,
)
from rowsweep.sweeps.passes.advice import advise, wrong_sql
from rowsweep.sweeps.passes.steered import SteeredPass
from rowsweep.telemetry.events import emit

if TYPE_CHECKING:
    from rowsweep.steps.context import RunCtx
    from rowsweep.sweeps.handle import Sweep

_Done = TypeVar("_Done")


class RecoveringPass(SteeredPass):
    """Retry what only the moment refused; let any other error end the run, with what its batch covers."""

    def __init__(self, sweep: Sweep[Any], ctx: RunCtx, step: str) -> None:
        super().__init__(sweep, ctx, step)
        self._patience = Patience()

    @abstractmethod
    def _blame(self, error: Exception) -> None:
        """Note on an error what the batch covers."""

    def _until_done(self, batch: Callable[[int], _Done]) -> tuple[_Done, float]:
        """Do a batch of so many rows, smaller and smaller where the moment is bad, until it is committed.

        Answers it with the milliseconds of the attempt that was.
        """
        while True:
            started = real_monotonic()
            try:
                done = batch(self._size.rows)
            except Exception as error:  # noqa: BLE001 - sorted there, and raised again unless it passes
                self._recover(error)
            else:
                milliseconds = (real_monotonic() - started) * 1000
                self._patience.succeeded()
                return done, milliseconds

    def _recover(self, error: Exception) -> None:
        """Wait and shrink after an error of the moment, reading back where the pass stands; raise any other."""
        if self._ctx.signal.aborted:
            raise Interrupted(self._ctx.signal.reason) from error
        unknown = isinstance(error, (CommitUnknown, CheckpointMoved))
        if not unknown and not is_passing(error):
            declare_terminal(error)
            self._blame(error)
            raise error
        lost = unknown or is_lost_connection(error)
        is_full = is_without_room(error)
        pause = self._patience.pause_seconds(rows=1 if is_full else self._size.rows, lost=lost)
        if pause is None:
            self._blame(error)
            raise error
        if is_full:  # it has waited for as long as is worth being shown
            self._show_waiting(name_of(error))
            self._wait(pause, name_of(error))
            return
        self._size.halve()
        behind = database_error(error)
        emit(
            "sweeps.batch.shrunk",
            error=error,
            sweep=self._sweep.name,
            run_id=str(self._ctx.run_id),
            index=self._at.index + 1,
            batch_rows=self._size.rows,
            sqlstate=None if behind is None else behind.sqlstate,
        )
        self._wait(pause, name_of(error))
        if lost:
            self._resynchronise()

    def _resynchronise(self) -> None:
        """Learn from the database where the pass stands: a commit may have landed although its answer was lost.

        Locking the job row waits for the former session, which holds it until its commit is decided.
        """
        while True:
            try:
                self._held.release()
                with self._held.transaction():
                    stores = self._held.stores
                    if not stores.steps.guard(self._ctx.claim):
                        raise LeaseLost(
                            f"The claim of {self._sweep.name!r} was lost while its connection was.",
                            fix=f"rowsweep jobs show {self._ctx.job_id}",
                        )
                    step = stores.steps.get(self._ctx.run_id, self._step)
            except Exception as error:
                if self._ctx.signal.aborted:
                    raise Interrupted(self._ctx.signal.reason) from error
                if isinstance(error, LeaseLost) or not (is_passing(error) or isinstance(error, CommitUnknown)):
                    raise
                pause = self._patience.pause_seconds(rows=self._size.rows, lost=True)
                if pause is None:
                    raise
                self._wait(pause, "lost connection")
            else:
                self._at = self._read_back(None if step is None else step.output)
                self._stored = step is not None
                return

    def _report_failure(self, error: Exception) -> None:
        """Log the end of a run whose attempt will not be made again; what comes of a lost claim is another's."""
        record, signal = self._ctx.record, self._ctx.signal
        advise(error)
        if signal.aborted or isinstance(error, LeaseLost):
            return
        attempt = 1 if self._ctx.runner.has_restarted else record.attempt
        policy, most = self._sweep.retry, record.max_attempts
        if isinstance(decide(error, attempt=attempt, max_attempts=most, policy=policy, chance=0.0), Stop):
            emit(
                "sweeps.failed",
                error=error,
                sweep=self._sweep.name,
                run_id=str(self._ctx.run_id),
                rows=self._rows_done(),
            )


def declare_terminal(error: Exception) -> None:
    """Mark SQL that is wrong in itself (SQLSTATE class 42): trying again changes nothing."""
    if wrong_sql(error) is not None:
        error.retry = "terminal"  # type: ignore[attr-defined]  # any error may carry it
