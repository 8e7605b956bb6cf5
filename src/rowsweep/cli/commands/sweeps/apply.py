"""`rowsweep sweeps apply`: bring this database up to date with the backfills declared here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowsweep.cli.commands.ledger import watch_run
from rowsweep.cli.session import session_of
from rowsweep.cli.stopping import INTERRUPTED, Signals
from rowsweep.errors import AlreadyApplied
from rowsweep.show.tables import sweeps as tables

if TYPE_CHECKING:
    from rowsweep.sweeps.launches.applying import Application


def apply(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be launched.")] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Watch each until it ends, then launch what required it; workers do the work."),
    ] = False,
) -> None:
    """Launch every declared backfill that is not applied here yet, what others require first.

    Without --wait, one whose requirements are still at work is left for the next time. Leaves with 1 where one has
    changed since it was applied, or with --wait did not end done.
    """
    from rowsweep.sweeps.launches.applying import application_of, in_order
    from rowsweep.sweeps.registry import registered_backfills

    session = session_of(context)
    done: list[dict[str, Any]] = []
    with session.app(declares=True), Signals() as signals:
        for sweep in in_order(registered_backfills()):
            application = application_of(sweep)
            entry = _entry(application)
            done.append(entry)
            if dry_run or application.action not in ("launch", "live"):
                continue
            try:
                run = sweep.launch()
            except AlreadyApplied:
                entry.update(action="applied", why="by another process, a moment ago", status="done")
                continue
            entry["run_id"] = str(run.run_id)
            if wait:
                entry["status"] = watch_run(run, session.output, signals, as_documents=False).status
                if signals.name is not None:
                    break
    session.output.table(tables.applications_table(done), done)
    if signals.name is not None:
        session.output.note("What is launched goes on without you; run the same command again to go on.")
        raise typer.Exit(INTERRUPTED)
    bad = [entry for entry in done if entry["action"] == "changed" or (wait and not dry_run and _is_open(entry))]
    raise typer.Exit(1 if bad else 0)


def _entry(application: Application) -> dict[str, Any]:
    return {
        "name": application.sweep.name,
        "action": application.action,
        "why": application.why,
        "run_id": None,
        "status": "done" if application.action == "applied" else None,
    }


def _is_open(entry: dict[str, Any]) -> bool:
    return entry["status"] != "done" and entry["action"] in ("launch", "live", "wait")
