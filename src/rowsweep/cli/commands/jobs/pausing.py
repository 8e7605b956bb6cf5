"""`rowsweep jobs pause`, `resume` and `pauses`: hold a queue, a name, or a name on one queue back."""

from __future__ import annotations

from typing import Annotated

import typer

from rowsweep.cli.session import session_of
from rowsweep.show.tables import queue as tables

OfQueue = Annotated[str | None, typer.Option("--queue", metavar="Q", help="The queue.")]
OfName = Annotated[str | None, typer.Option("--name", metavar="NAME", help="The job's name, on that queue or on all.")]


def pause(
    context: typer.Context,
    queue: OfQueue = None,
    name: OfName = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for the record.")] = None,
) -> None:
    """Hold a queue, a name, or a name on one queue.

    From the next claim on: what is claimed already goes on, and jobs are still taken in. They stay ready. What is
    paused already stays as it was, its reason too.
    """
    session = session_of(context)
    _check(queue, name)
    with session.app() as app:
        standing = {(pause.queue, pause.name) for pause in app.operate.pauses()}
        made = app.operate.pause(queue=queue, name=name, reason=reason)
    words = "was paused already; see rowsweep jobs pauses" if (queue, name) in standing else "paused"
    session.output.answer(made.as_json(), f"{_words(queue, name)}: {words}")


def resume(context: typer.Context, queue: OfQueue = None, name: OfName = None) -> None:
    """Take a pause away, named as it was paused.

    Its workers are woken; where nothing was paused nothing changes.
    """
    session = session_of(context)
    _check(queue, name)
    with session.app() as app:
        was_paused = app.operate.resume(queue=queue, name=name)
    words = "resumed" if was_paused else "was not paused; see rowsweep jobs pauses"
    document = {"queue": queue, "name": name, "was_paused": was_paused}
    session.output.answer(document, f"{_words(queue, name)}: {words}")


def pauses(context: typer.Context) -> None:
    """List what is paused, since when, by whom and why."""
    session = session_of(context)
    with session.app() as app:
        found = app.operate.pauses()
    session.output.table(tables.pauses_table(found), [pause.as_json() for pause in found])


def _check(queue: str | None, name: str | None) -> None:
    if queue is None and name is None:
        raise typer.BadParameter("name what: --queue Q, --name NAME, or both for that name on that queue only.")


def _words(queue: str | None, name: str | None) -> str:
    if name is None:
        return f"queue {queue}"
    return f"{name} on every queue" if queue is None else f"{name} on queue {queue}"
