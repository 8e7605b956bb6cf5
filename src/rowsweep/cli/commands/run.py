"""`rowsweep run`: launch a sweep, work it in this process, and show it until it ends."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rowsweep.cli.commands.sweeps.flags import (
    BatchRows,
    Confirm,
    Force,
    Input,
    MaxRejected,
    Name,
    OnErrorFlag,
    Rate,
    confirmation,
)
from rowsweep.cli.everywhere import EPILOG
from rowsweep.cli.following import SECONDS_BETWEEN_LOOKS, display_for
from rowsweep.cli.lease import ForeignLease
from rowsweep.cli.session import Session, read_json, session_of
from rowsweep.cli.stopping import INTERRUPTED, TERMINATED, Signals, leave_server
from rowsweep.errors import SweepNotLive
from rowsweep.show.words import values

if TYPE_CHECKING:
    from rowsweep.app.app import App
    from rowsweep.sweeps.handle import Sweep
    from rowsweep.sweeps.run import Run
    from rowsweep.sweeps.snapshot import Snapshot
    from rowsweep.worker.worker import Worker

_PAUSING: Final = "pausing after the batch in flight; Ctrl-C again stops at once"


def add_to(application: typer.Typer) -> None:
    """Add the command to the application."""
    application.command("run", epilog=EPILOG)(run)


def run(  # noqa: PLR0913 - one parameter a flag
    context: typer.Context,
    name: Name,
    *,
    given: Input = None,
    force: Force = False,
    batch_rows: BatchRows = None,
    rate: Rate = None,
    confirm: Confirm = None,
    on_error: OnErrorFlag = None,
    max_rejected: MaxRejected = None,
    visibility: Annotated[
        str,
        typer.Option(
            metavar="SPAN", help="How long the claim stands when this process dies, before another takes over."
        ),
    ] = "30s",
) -> None:
    """Launch a sweep, work it here and show its progress.

    A paused or abandoned run of it goes on where it stopped. Ctrl-C pauses it after the batch in flight (leaves with
    130), a second one stops at once. SIGTERM hands it to the next worker (143). What is committed stays.
    """
    from rowsweep.sweeps.registry import get_sweep
    from rowsweep.worker.options import WorkerOptions

    WorkerOptions(visibility=visibility)  # refused before anything is connected to, and launched
    session = session_of(context)
    value = read_json(given, flag="--input")
    with session.app(declares=True, shipped=True) as app:
        sweep = get_sweep(name)
        more = confirmation(sweep, confirm)
        app.works_launched = True
        launched = sweep.launch(
            value, force=force, rate=rate, batch_rows=batch_rows, on_error=on_error, max_rejected=max_rejected, **more
        )
        if launched.attached:
            _take_up(session, launched, sweep, is_steered=force or rate is not None or batch_rows is not None)
        jobs, queues = sweep.most_jobs, [sweep.options.queue]
        worker = app.worker(queues=queues, names=[name], concurrency=jobs, visibility=visibility)
        with Signals(lambda: leave_server(app)) as signals:
            worker.start()
            last = _Shift(session, app, launched, worker, signals).work()
        _end(session, launched, last, signals)


class _Shift:
    """Show a run while the worker of this process works on it."""

    def __init__(self, session: Session, app: App, run: Run, worker: Worker, signals: Signals) -> None:
        self._output = session.output
        self._run = run
        self._worker = worker
        self._signals = signals
        self._lease = ForeignLease(app, run, worker)
        self._is_pausing = False

    def work(self) -> Snapshot:
        """Stay until the run ends, is paused by a Ctrl-C, or SIGTERM comes; answer the last snapshot."""
        from rowsweep.telemetry.console import configure_logging

        with display_for(self._output) as display:
            # Only now: log lines then go above the live lines, not through them.
            configure_logging(level="warning")
            while True:
                snapshot = self._run.snapshot()
                display.show(snapshot, self._note(snapshot))
                if self._is_over(snapshot):
                    break
                self._signals.wait(SECONDS_BETWEEN_LOOKS)
        if self._signals.is_terminated:
            from rowsweep.lifecycle import lifecycle

            lifecycle().shutdown("SIGTERM")
        else:
            self._worker.stop()
        return snapshot

    def _is_over(self, snapshot: Snapshot) -> bool:
        if not snapshot.is_open or self._signals.is_terminated:
            return True
        if self._signals.is_interrupted and not self._is_pausing:
            self._is_pausing = True
            with suppress(SweepNotLive):  # it has ended meanwhile, which the next look shows
                self._run.pause("Ctrl-C")
        return self._is_pausing and snapshot.words == "paused"

    def _note(self, snapshot: Snapshot) -> str | None:
        if not snapshot.is_open:
            return None
        if self._is_pausing:
            return _PAUSING if snapshot.words != "paused" else None
        waits = self._lease.words(snapshot)
        return waits or ("Ctrl-C pauses it" if self._output.is_terminal else None)


def _take_up(session: Session, run: Run, sweep: Sweep[Any], *, is_steered: bool) -> None:
    """Go on with a run that is live already, resumed if it was paused, and say so."""
    was = run.snapshot()
    with suppress(SweepNotLive):  # it has ended meanwhile, which is shown
        # Also one that was asked to pause and whose worker then died: the next would only park it.
        run.resume("rowsweep run")
    session.output.say(f"Going on with run {was.run_id}: {was.words}, {values.number(was.rows)} rows done.")
    if was.checksum != sweep.checksum:
        session.output.note(f"{was.name} was launched from another version of its declaration.")
    if is_steered:
        session.output.note("--force, --batch-rows and --rate stay as that run was launched with.")


def _end(session: Session, run: Run, last: Snapshot, signals: Signals) -> None:
    if session.output.is_json:
        session.output.document(last.as_json())
    if not last.is_open:
        run.wait()
        return
    at = f"{last.name} is at {values.number(last.rows)} rows"
    if signals.is_terminated:
        session.output.note(f"{at}, left to the next worker. Go on here: rowsweep run {last.name}")
        raise typer.Exit(TERMINATED)
    session.output.note(
        f"{at}, paused. Go on here: rowsweep run {last.name}; on a worker: rowsweep sweeps resume {last.name}"
    )
    raise typer.Exit(INTERRUPTED)
