"""Moving sets of jobs from the command line: what is chosen, the question before, and the calls until zero."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import typer

from rowsweep.cli.commands.jobs.flags import State
from rowsweep.cli.stopping import INTERRUPTED
from rowsweep.queue.selection import MAX_BULK_ROWS, BulkResult
from rowsweep.show.words.values import number

if TYPE_CHECKING:
    from rowsweep.cli.session import Session

MaybeId = Annotated[UUID | None, typer.Argument(metavar="[ID]", help="The job's id; without it a set is moved.")]
SetState = Annotated[State | None, typer.Option("--state", help="The set: only in this state.")]
SetQueue = Annotated[str | None, typer.Option("--queue", metavar="Q", help="The set: only of this queue.")]
SetName = Annotated[str | None, typer.Option("--name", metavar="NAME", help="The set: only of this name.")]
SetTenant = Annotated[str | None, typer.Option("--tenant", metavar="ID", help="The set: only of this tenant.")]
All = Annotated[bool, typer.Option("--all", help="The whole set; else at most 1,000 of it.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a set is moved.")]

_REFUSED: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What the flags of a bulk verb chose."""

    state: State | None
    queue: str | None
    name: str | None
    tenant: str | None
    whole: bool
    yes: bool = True

    @property
    def filters(self) -> dict[str, Any]:
        """The filters, as the bulk verbs take them."""
        return {"state": self.state, "queue": self.queue, "name": self.name, "tenant_id": self.tenant}

    @property
    def words(self) -> str:
        """The filters in words."""
        return ", ".join(f"{name.removesuffix('_id')} {value}" for name, value in self.filters.items() if value)

    def check(self, job_id: UUID | None) -> None:
        """Refuse neither an id nor a set, and both, as wrong usage."""
        is_set = any(value is not None for value in self.filters.values())
        if job_id is not None and (is_set or self.whole):
            raise typer.BadParameter("an ID is one job; --state, --queue, --name, --tenant and --all choose a set.")
        if job_id is None and not is_set:
            raise typer.BadParameter("give an ID, or choose a set: --state, --queue, --name, --tenant.")


def move_set(session: Session, chosen: Chosen, move: Callable[..., BulkResult], *, verb: str, done: str) -> None:
    """Ask where that is due, move the set, and say what was moved and what is left.

    Leaves with 1 where the answer is no, and where rows that others have locked are left of the whole set.
    """
    there = move(**chosen.filters, limit=0).remaining
    wanted = there if chosen.whole else min(there, MAX_BULK_ROWS)
    if wanted and not chosen.yes:
        _ask(f"{verb} {_of(wanted, there)} ({chosen.words})?")
    last, affected = BulkResult(affected=0, remaining=there), 0
    with session.output.counting(done) as count:
        for last in _calls(move, chosen, there):
            affected += last.affected
            count(affected)
    left = f", {number(last.remaining)} left" if last.remaining else ""
    more = "; add --all for the whole set" if last.remaining and not chosen.whole else ""
    result = BulkResult(affected=affected, remaining=last.remaining)
    session.output.answer(result, f"{number(affected)} {done}{left}{more}")
    if chosen.whole and last.remaining and not last.affected:
        raise typer.Exit(_REFUSED)


def _calls(move: Callable[..., BulkResult], chosen: Chosen, there: int) -> Any:
    from rowsweep.operate.repeat import until_zero

    if chosen.whole:
        return until_zero(lambda limit: move(**chosen.filters, limit=limit))
    return [move(**chosen.filters)] if there else []


def _ask(question: str) -> None:
    """Ask on the terminal, on stderr; without one it is wrong usage to leave out --yes."""
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{question} There is no terminal to ask on: add --yes.")
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        raise typer.Exit(INTERRUPTED) from None
    if not agreed:
        sys.stderr.write("Nothing was changed.\n")
        raise typer.Exit(_REFUSED)


def _of(wanted: int, there: int) -> str:
    jobs = "job" if there == 1 else "jobs"
    return f"{number(wanted)} {jobs}" if wanted == there else f"{number(wanted)} of {number(there)} {jobs}"
