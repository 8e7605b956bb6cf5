"""`rowsweep jobs enqueue`: put one job on the queue by hand."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rowsweep.cli.commands.jobs.flags import read_iso
from rowsweep.cli.session import read_json, session_of


def enqueue(  # noqa: PLR0913 - one parameter a flag
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The job's name, as it is declared.")],
    value: Annotated[
        str | None, typer.Argument(metavar="[JSON]", help="Its input; behind -- where it begins with a minus.")
    ] = None,
    *,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Not while a live job has this key.")] = None,
    delay: Annotated[str | None, typer.Option(metavar="SPAN", help="Due after so long, such as 10m.")] = None,
    run_at: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Due at this instant: ISO 8601, UTC unless it says otherwise.")
    ] = None,
    queue: Annotated[str | None, typer.Option(metavar="Q", help="This queue instead of the declared one.")] = None,
    priority: Annotated[int | None, typer.Option(metavar="N", help="-1000 to 1000, higher first.")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="ID", help="Whose data it touches.")] = None,
) -> None:
    """Put one declared job on the queue, its input checked.

    With --key the live job that has it already answers, if there is one.
    """
    from rowsweep.jobs.registry import get_job

    session = session_of(context)
    given: dict[str, Any] = {
        "key": key,
        "delay": delay,
        "run_at": read_iso(run_at, flag="--run-at"),
        "queue": queue,
        "priority": priority,
        "tenant": tenant,
    }
    with session.app(declares=True, shipped=True):
        made = get_job(name).enqueue(
            read_json(value, flag="JSON"), **{option: wanted for option, wanted in given.items() if wanted is not None}
        )
    document = {
        "id": made.id, "run_id": made.run_id, "name": name, "state": made.state, "deduplicated": made.deduplicated
    }  # fmt: skip
    already = ", the live one with that key" if made.deduplicated else ""
    session.output.answer(document, f"{name} {made.id}: {made.state}{already}")
