"""`rowsweep outbox`: look at staged jobs, and try again what could not be published."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from rowsweep.cli.everywhere import EPILOG
from rowsweep.cli.session import session_of
from rowsweep.errors import JobNotFound, NotImplementedByDriver
from rowsweep.show.tables.outbox import as_document, outbox_table

if TYPE_CHECKING:
    from rowsweep.cli.session import Session
    from rowsweep.queue.stores.outbox import OutboxStore

OutboxDsn = Annotated[
    str | None,
    typer.Option("--outbox-dsn", metavar="DSN", help="The database whose outbox it is, else the queue's own."),
]

_outbox = typer.Typer(no_args_is_help=True, help="Look at staged jobs, and try again what could not be published.")


def add_to(application: typer.Typer) -> None:
    """Add the commands to the application."""
    application.add_typer(_outbox, name="outbox")


@_outbox.command("ls", epilog=EPILOG)
def ls(
    context: typer.Context,
    *,
    dead: Annotated[bool, typer.Option("--dead", help="Only those that nobody tries any more.")] = False,
    is_all: Annotated[bool, typer.Option("--all", help="Also those that are published.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", help="How many at most.", min=0)] = 100,
    outbox_dsn: OutboxDsn = None,
) -> None:
    """List staged jobs that wait to be published, newest first."""
    session = session_of(context)
    with _store(session, outbox_dsn) as store:
        if dead or is_all:
            found = store.list(status="dead" if dead else None, limit=limit)
        else:
            found = store.list(status="pending", limit=limit)
    session.output.table(outbox_table(found), [as_document(row) for row in found])


@_outbox.command("retry", epilog=EPILOG)
def retry(
    context: typer.Context,
    row: Annotated[UUID | None, typer.Argument(metavar="[ID]", help="The staged job's id.")] = None,
    *,
    is_all: Annotated[bool, typer.Option("--all", help="All that nobody tries any more.")] = False,
    outbox_dsn: OutboxDsn = None,
) -> None:
    """Let the relay try again what it could not publish, with its attempts counted anew."""
    if (row is None) is not is_all:
        raise typer.BadParameter("retry takes an ID or --all")
    session = session_of(context)
    with _store(session, outbox_dsn) as store:
        moved = store.retry(None if row is None else [row])
    if row is not None and not moved:
        raise JobNotFound(
            f"{row} is no staged job that waits: it is published, in a relay's hands, or was never staged.",
            fix="rowsweep outbox ls --all --json",
            meta={"id": str(row)},
        )
    session.output.answer({"retried": moved}, f"{len(moved)} staged job{'' if len(moved) == 1 else 's'} due again")


@contextmanager
def _store(session: Session, outbox_dsn: str | None) -> Iterator[OutboxStore]:
    with session.app(outbox=outbox_dsn) as app:
        store = app.stores().outbox if app.outbox is None else app.outbox.outbox
        if store is None:
            raise NotImplementedByDriver(
                f"The driver {app.driver.name!r} keeps no outbox.", fix='rs.connect("postgresql://…")'
            )
        yield store
