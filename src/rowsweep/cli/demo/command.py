"""`rowsweep demo`: make a table, sweep it, kill the worker on the way, go on, and prove what came of it."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rowsweep.cli.demo.orders import PROOF, Proof, make_orders, prove, refuse_foreign
from rowsweep.cli.demo.workers import Commands, Killed, Stopped
from rowsweep.cli.everywhere import EPILOG
from rowsweep.cli.session import Session, session_of
from rowsweep.cli.stopping import INTERRUPTED, TERMINATED, Signals, leave_server
from rowsweep.clock import real_monotonic
from rowsweep.show.tables import sweeps as tables
from rowsweep.show.words import values

if TYPE_CHECKING:
    from rowsweep.app.app import App

SWEEP: Final = "order-totals"
SWEEPS: Final = (SWEEP, "order-bands", "index-orders")
_KILL_AT_PERCENT: Final = 40.0
_VISIBILITY: Final = "5s"
_ROWS_WORTH_NO_RATE: Final = 400_000
_SECONDS_OF_A_SMALL_ONE: Final = 4


def add_to(application: typer.Typer) -> None:
    """Add the command to the application."""
    application.command("demo", epilog=EPILOG)(demo)


def demo(
    context: typer.Context,
    rows: Annotated[int, typer.Option(metavar="N", help="How many orders to make.", min=10_000)] = 2_000_000,
) -> None:
    """Watch a backfill be killed, go on, and be proved right.

    Its worker is killed with SIGKILL at about 40 %; another goes on; plain SQL then shows that every row was written
    exactly once.

    It works on the embedded Postgres of this folder (./.rowsweep) unless --dsn names another one, and makes a table
    orders there. Its workers hold their claims for 5 s instead of 30 s, so that you wait less for the killed one's.
    """
    session = session_of(context)
    # Never somebody's real database by accident, here or in the commands that the demo starts.
    os.environ.pop("DATABASE_URL", None)
    with session.app(announces=False) as app, Signals(lambda: leave_server(app)) as signals:
        story = _Story(session, app, rows, signals)
        try:
            is_proved = story.tell()
        except Stopped as stopped:
            rest = " ".join([SWEEP, *story.flags])
            session.output.note(f"The demo was stopped. Go on with its sweep: rowsweep run {rest}")
            raise typer.Exit(TERMINATED if stopped.name == "SIGTERM" else INTERRUPTED) from None
    raise typer.Exit(0 if is_proved else 1)


class _Story:
    """The demo's chapters, in order."""

    def __init__(self, session: Session, app: App, rows: int, signals: Signals) -> None:
        self._output = session.output
        self._app = app
        self._rows = rows
        self.flags = _app_flags()
        hidden = [
            *(["--dsn", session.everywhere.dsn] if session.everywhere.dsn else []),
            *(["--schema", session.everywhere.schema] if session.everywhere.schema else []),
        ]
        self._commands = Commands(session.output, signals, shown=self.flags, hidden=hidden)

    def tell(self) -> bool:
        """Tell it all; answer whether the proof holds."""
        self._prepare()
        self._chapter("What is declared here, and what became of it")
        self._commands.run("sweeps", "ls")
        self._chapter(f"Fill in {values.number(self._rows)} totals, and lose the worker on the way")
        killed = self._sweep_and_kill()
        self._chapter("Start another worker: the sweep goes on behind its last batch")
        self._commands.run("run", SWEEP, "--visibility", _VISIBILITY)
        self._chapter("Ask the table itself: was every row written exactly once?")
        proof = prove(self._app.driver)
        is_proved = self._judge(proof)
        self._chapter("What the ledger keeps")
        self._commands.run("ledger", "--name", SWEEP, "--limit", "1")
        if self._output.is_json:
            self._document(killed, proof, is_proved)
        else:
            rest = " ".join(["order-bands", *self.flags])
            self._output.say(f"\nNext: rowsweep sweeps preview {rest}\n      rowsweep run {rest}")
        return is_proved

    def _prepare(self) -> None:
        self._output.say(self._app.announcement)
        self._chapter(f"Make a table of {values.number(self._rows)} orders")
        began = real_monotonic()
        refuse_foreign(self._app.driver)
        self._app.install()
        for name in SWEEPS:
            for run in self._app.runs(name=name, limit=20):
                if run.is_open:
                    self._app.run_of(run.run_id).cancel("rowsweep demo makes its table anew")
        with self._output.counting(f"of {values.number(self._rows)} rows") as count:
            make_orders(self._app.driver, self._rows, count)
        self._output.say(f"made in {values.span(real_monotonic() - began)}")

    def _sweep_and_kill(self) -> Killed | None:
        flags = ["--visibility", _VISIBILITY]
        if self._app.runs(name=SWEEP, status="done", limit=1):
            flags.append("--force")  # the ledger has it from an earlier demo, of a table that is gone
        if self._rows < _ROWS_WORTH_NO_RATE:
            flags += ["--rate", f"{self._rows // _SECONDS_OF_A_SMALL_ONE}/s"]
        killed = self._commands.run_and_kill(
            "run",
            SWEEP,
            *flags,
            at_percent=_KILL_AT_PERCENT,
            look=lambda: next((run for run in self._app.runs(name=SWEEP, limit=1) if run.is_open), None),
        )
        if killed is None:
            self._output.say("The worker ended before it could be killed.", style="yellow")
        else:
            self._output.say(
                f"Killed the worker (process {killed.pid}) with SIGKILL at {values.percent(killed.percent)}: "
                f"{values.number(killed.rows)} rows are committed, the batch in flight rolled back.",
                style="bold red",
            )
        return killed

    def _judge(self, proof: Proof) -> bool:
        self._output.say(PROOF)
        facts = asdict(proof)
        shown = [[values.number(value) if isinstance(value, int) else value for value in facts.values()]]
        if not self._output.is_json:
            self._output.table(tables.frame_table(list(facts), shown, [True] * len(facts)), facts)
        swept = next(iter(self._app.runs(name=SWEEP, limit=1)), None)
        is_proved = proof.holds_for(self._rows) and swept is not None and swept.rows == self._rows
        if is_proved:
            self._output.say("Every row was written exactly once, across the kill.", style="bold green")
        else:
            self._output.say("NOT proved: rows are missing, repeated or wrong.", style="bold red")
        return is_proved

    def _document(self, killed: Killed | None, proof: Proof, is_proved: bool) -> None:
        self._output.document(
            {
                "rows": self._rows,
                "killed": None if killed is None else asdict(killed),
                "proof": asdict(proof),
                "is_proved": is_proved,
                "ledger": [run.as_json() for run in self._app.runs(name=SWEEP, limit=1)],
            }
        )

    def _chapter(self, title: str) -> None:
        self._output.say(f"\n{title}", style="bold")


def _app_flags() -> list[str]:
    """Answer the flag that names the demo's sweeps: none where this folder's `backfills/` has them.

    Elsewhere they are copied into `.rowsweep/demo`, to be read and changed there.
    """
    files = [f"{name.replace('-', '_')}.py" for name in SWEEPS]
    if all((Path("backfills") / file).is_file() for file in files):
        return []
    folder = Path(".rowsweep/demo")
    folder.mkdir(parents=True, exist_ok=True)
    with resources.as_file(resources.files("rowsweep.cli.demo.backfills")) as shipped:
        for file in files:
            shutil.copyfile(shipped / file, folder / file)
    return ["--app", str(folder)]
