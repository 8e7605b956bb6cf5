"""A run of a sweep, watched and steered from any process."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast
from uuid import UUID

from rowsweep.clock import real_monotonic
from rowsweep.errors import InvalidOption, NotImplementedByDriver, SweepCancelled, SweepFailed, SweepNotFound, TimedOut
from rowsweep.jobs import ambient
from rowsweep.options import count, duration
from rowsweep.options import rate as parse_rate
from rowsweep.queue.records import FINISHED_STATES
from rowsweep.queue.stores.ledger import Tuning
from rowsweep.signals import RunSignal
from rowsweep.sweeps.health.choice import asked_of
from rowsweep.sweeps.passes.advice import advice_in
from rowsweep.sweeps.passes.pacing import NO_RATE
from rowsweep.sweeps.snapshot import Snapshot, snapshot_of
from rowsweep.sweeps.spec import MOST_BATCH_ROWS
from rowsweep.telemetry.events import emit
from rowsweep.telemetry.redact import redact_text
from rowsweep.telemetry.text import safe_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    import polars as pl

    from rowsweep.queue.contract import Driver
    from rowsweep.queue.stores.ledger import Backfill, LedgerStore, Wanted
    from rowsweep.sweeps.batch.source import Lender
    from rowsweep.sweeps.health.signals import HealthCheck
    from rowsweep.sweeps.late.receipts.receipt import Receipt

# What a failed run cannot go on from: its fix says so, and to resume would only fail again.
_ANEW: Final = re.compile(r"launch the \w+ anew")
_LOOK_SECONDS: Final = 0.25
_LONGEST_REASON: Final = 1_000
_RESULT_SECONDS: Final = 5.0


class Host(Protocol):
    """The connected app, as sweeps see it."""

    actor: str | None
    app_version: str | None
    sweep_health: tuple[HealthCheck, ...]
    works_launched: bool

    @property
    def driver(self) -> Driver:
        """Where the queue and the ledger are."""

    def source(self, dsn: str) -> Lender:
        """Answer what lends connections to another database that a sweep names as its source."""

    def work_here(self) -> None:
        """Start working what this process has declared, unless a fleet is to do it; look for work at once."""

    def bundle(self, snapshot: Snapshot) -> dict[str, str]:
        """Answer a snapshot's display bundle; `text/plain` is always in it."""

    def receipt_html(self, receipt: Receipt) -> str:
        """Answer a receipt as a part of a page."""

    def show(self, run: Run) -> None:
        """Show a run below the cell that runs, live where that can be."""

    def tell(self, row: Backfill) -> None:
        """Bring the open views of this process to a row of the ledger that was just read."""


def host() -> Host:
    """Answer the connected app; DriverUnavailable before anything is connected."""
    return cast("Host", ambient.enqueuer())


def ledger_of(driver: Driver) -> LedgerStore:
    """Answer the driver's ledger; NotImplementedByDriver where it has none."""
    ledger = driver.stores().ledger
    if ledger is None:
        raise NotImplementedByDriver(
            f"The driver {driver.name!r} keeps no ledger of sweeps.", fix="rs.connect() with the Postgres driver"
        )
    return ledger


class Run:
    """A run of a sweep: watch it with `snapshot()`, `wait()`; steer with `pause()`, `resume()`, `tune()`, `cancel()`.

    It holds nothing: closing the notebook or the process that launched it changes nothing for the run, and
    `rs.attach(run_id)` finds it again from anywhere. `attached` says that `launch()` found it live already; `note`
    is what there was to say about that.
    """

    def __init__(self, app: Host, run_id: UUID, name: str, *, attached: bool = False, note: str | None = None) -> None:
        self.run_id = run_id
        self.name = name
        self.attached = attached
        self.note = note
        self._app = app
        self._last: Snapshot | None = None

    def __repr__(self) -> str:
        return self._app.bundle(self.snapshot())["text/plain"]

    def _ipython_display_(self) -> None:
        self._app.show(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002 - IPython's
        return self._app.bundle(self.snapshot())

    def snapshot(self) -> Snapshot:
        """Answer how the run stands now: one statement. Raises SweepNotFound before its pass has begun."""
        self._last = snapshot_of(self._row(), self._last)
        return self._last

    def wait(self, timeout: str | timedelta | None = None) -> dict[str, Any]:
        """Wait until the run ends and answer its totals: rows, written, batches, rejected, remaining (and late).

        Raises SweepFailed with the last error, SweepCancelled, and TimedOut (the run goes on). Ctrl-C leaves the run
        going and says so. A paused run is waited for.
        """
        limit = None if timeout is None else duration(timeout, option="timeout").total_seconds()
        began = real_monotonic()
        try:
            while (row := self._row()).status not in ("done", "failed", "cancelled"):
                if limit is not None and real_monotonic() - began > limit:
                    raise self._timed_out(row, limit)
                RunSignal().wait(_LOOK_SECONDS)
        except KeyboardInterrupt:
            sys.stderr.write(f"Stopped waiting; {self.name!r} goes on: rs.attach({str(self.run_id)!r})\n")
            raise
        return self._ended(row)

    def pause(self, reason: str | None = None) -> Snapshot:
        """Pause behind the batch in flight; at once where nobody works it. Raises SweepNotLive for an ended run."""
        return self._steered("pause", reason)

    def resume(self, reason: str | None = None) -> Snapshot:
        """Go on behind the cursor: a paused run, or a failed or cancelled one with its attempts counted anew.

        Raises SweepNotLive for a run that is done.
        """
        return self._steered("run", reason)

    def cancel(self, reason: str | None = None) -> Snapshot:
        """End the run: its statement in flight is cancelled and that batch rolls back; what was committed stays.

        Raises NotCancellable for an ended run.
        """
        return self._steered("cancel", reason)

    def tune(
        self,
        *,
        rate: str | None = None,
        batch_rows: int | None = None,
        health: Literal["on", "off"] | Mapping[str, Any] | None = None,
    ) -> Snapshot:
        """Change how fast a live run goes, from any process: at most `rate` rows ("2000/s"), batches from `batch_rows`.

        `health` is "off", "on" (what is declared, else the default signals), or limits by signal that are laid over
        what is declared: `{"replica_lag": "30s", "vacuum": "off"}`. None leaves an option as it is; the rate "none"
        lifts the limit, also a declared one. Felt in the next batch and kept with who asked and when; a wait for the
        rate or for health ends at once. Raises SweepNotLive for an ended run, InvalidOption.
        """
        if rate is not None and rate != NO_RATE:
            parse_rate(rate, option="rate")
        if batch_rows is not None:
            count(batch_rows, option="batch_rows", minimum=1, maximum=MOST_BATCH_ROWS)
        if rate is None and batch_rows is None and health is None:
            raise InvalidOption(
                "tune() changes rate=, batch_rows= or health=; it was given none of them.",
                fix='run.tune(rate="2000/s"); rate="none" lifts the limit',
                meta={"option": "rate"},
            )
        tuning = Tuning(
            rate=rate,
            batch_rows=batch_rows,
            health=None if health is None else asked_of(health),
            by=ambient.attribution(),
        )
        row = ledger_of(self._app.driver).steer(self.run_id, tuning)
        self._app.tell(row)
        self._last = snapshot_of(row, self._last)
        return self._last

    def verify(self, timeout: str | timedelta = "5m") -> Receipt:
        """Count what still matches of the run's rows, in one snapshot, and answer the receipt; nothing is changed.

        A run over rejected rows answers for the one that set them aside.
        The sweep must be declared here. Raises UnknownJob, SweepNotFound before its pass has begun,
        ChangedSinceApplied where it is declared over other rows now, TimedOut where counting takes longer.
        """
        from rowsweep.sweeps.late.receipts.counting import verify

        seconds = duration(timeout, option="timeout").total_seconds()
        return verify(self._app, self._row(), timeout_seconds=seconds)

    def rejected(self) -> pl.DataFrame:
        """Answer the rows that were set aside and that no retry has done since: key, error, and when it was found.

        The key is the database's text of it; of a key of several columns, these with their names as JSON.
        """
        from rowsweep.sweeps.poison.rejected import rejected_frame

        return rejected_frame(self._app.driver, self.run_id)

    def retry_rejected(self) -> Run:
        """Launch a run over exactly the rows that `rejected()` lists; those that it does leave the list.

        It waits until no other run of this sweep is being worked, so it may be launched while this one goes on. A row
        that fails again stays, and is listed by that run too. While such a run is live, answers that one. Raises
        SweepNotLive where no row is set aside, UnknownJob where the sweep is not declared here.
        """
        from rowsweep.sweeps.launches.launch import retry_rejected

        return retry_rejected(self._row())

    def _steered(self, wanted: Wanted, reason: str | None) -> Snapshot:
        told = None if reason is None else safe_text(redact_text(reason), _LONGEST_REASON)
        row = ledger_of(self._app.driver).steer(self.run_id, wanted, reason=told, by=ambient.attribution())
        _log_verb(row, wanted, told)
        self._app.tell(row)
        if wanted == "run":
            self._app.work_here()
        self._last = snapshot_of(row, self._last)
        return self._last

    def _row(self) -> Backfill:
        row = ledger_of(self._app.driver).get(self.run_id)
        if row is None:
            raise SweepNotFound(
                f"No ledger row has the run id {self.run_id}.",
                fix="rowsweep sweeps ls",
                meta={"run_id": str(self.run_id)},
            )
        return row

    def _ended(self, row: Backfill) -> dict[str, Any]:
        self._app.tell(row)
        if row.status == "failed":
            raise SweepFailed(
                f"{row.name!r} failed after {row.rows:,} rows in {row.batches:,} batches: {_said(row)}",
                fix=_way_on(row),
                meta={"run_id": str(row.run_id), "code": row.last_error_code},
            )
        if row.status == "cancelled":
            raise SweepCancelled(
                f"{row.name!r} was cancelled after {row.rows:,} rows"
                + (f": {row.last_error}" if row.last_error else "."),
                fix=f"run.resume() goes on behind the last batch (rowsweep sweeps resume {row.run_id})",
                meta={"run_id": str(row.run_id)},
            )
        return {"rows": row.rows, "written": row.written, "batches": row.batches, **self._result(row)}

    def _result(self, row: Backfill) -> dict[str, Any]:
        """Answer the pass's own result, which also knows what remains: its job settles a moment after the ledger."""
        inspection = self._app.driver.stores().inspection
        until = real_monotonic() + _RESULT_SECONDS
        while inspection is not None and row.job_id is not None and real_monotonic() < until:
            job = inspection.get(row.job_id)
            if job is not None and isinstance(job.result, dict):
                return job.result
            if job is None or job.state in FINISHED_STATES:
                break
            RunSignal().wait(_LOOK_SECONDS / 5)
        return {"rejected": row.rejected_rows, "remaining": None, **({"late": None} if row.kind == "backfill" else {})}

    def _timed_out(self, row: Backfill, limit: float) -> TimedOut:
        return TimedOut(
            f"{row.name!r} has not ended after {limit:g} s: {row.status}, {row.rows:,} rows. It goes on.",
            fix="run.wait(timeout=…) with a longer timeout",
            meta={"run_id": str(row.run_id)},
        )


def _log_verb(row: Backfill, wanted: Wanted, reason: str | None) -> None:
    """Log what a verb itself brought about; a run that is held logs its pause when it gets there."""
    named = {"sweep": row.name, "run_id": str(row.run_id), "reason": reason}
    if wanted == "run":
        emit("sweeps.resumed", **named)
    elif wanted == "cancel":
        emit("sweeps.cancelled", **named)
    elif row.status == "paused":
        emit("sweeps.paused", **named)


def _said(row: Backfill) -> str:
    """Answer what a failed run's error says, without the fix that `_way_on` repeats."""
    said, found, _ = ((row.last_error or "").partition("\n")[0]).rpartition(" Fix: ")
    if row.last_error_code and found and said:
        return said
    return "\n".join(line for line in str(row.last_error).split("\n") if advice_in(line) is None)


def _way_on(row: Backfill) -> str:
    """Answer what to do about a failed run: what its error says, and to resume where that can help."""
    resume = f"run.resume() goes on behind the last batch (rowsweep sweeps resume {row.run_id})"
    said, found, own = ((row.last_error or "").partition("\n")[0]).rpartition(" Fix: ")
    if not (row.last_error_code and found and said):
        first = advice_in(row.last_error or "")
        return resume if first is None else f"{first}; then {resume}"
    return own if _ANEW.search(own) or not row.rows else f"{own}; then {resume}"
