"""Refusals that both drivers give in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowsweep.errors import InvalidOption, NoQueuesNamed, NotPromotable, NotRemovable, NotRequeueable, did_you_mean
from rowsweep.queue.selection import PROMOTABLE_STATES, REMOVABLE_STATES, REQUEUEABLE_STATES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from rowsweep.queue.records import ClaimOptions, JobState

_SHOWN = 10


def one_queue(options: ClaimOptions, *, driver: str) -> str:
    """Answer the queue that a claim names; raises NoQueuesNamed unless it is one."""
    if len(options.queues) == 1:
        return options.queues[0]
    raise NoQueuesNamed(
        f"a claim names exactly one queue; it named {len(options.queues)}.",
        fix='queues=["default"]',
        meta={"driver": driver, "queues": list(options.queues)},
    )


def check_from_step(job_id: UUID, name: str, *, jobs: int, stored: Sequence[str] | None) -> None:
    """Refuse to take a run up from a step that several jobs share, or that it has not stored.

    `stored` are the run's steps where the named one is not among them, else None.
    """
    if jobs > 1:
        raise NotRequeueable(
            f"the run of job {job_id} has {jobs} jobs, whose steps cannot be told apart by one of them.",
            fix=f"rowsweep jobs requeue {job_id}",
            meta={"job_id": str(job_id), "jobs": jobs},
        )
    if stored is not None:
        near = did_you_mean(name, stored)
        raise InvalidOption(
            f"the run of job {job_id} has stored no step {name!r}; it has {', '.join(stored[:_SHOWN]) or 'none'}. "
            f"{near}".strip(),
            fix=f"rowsweep jobs show {job_id} --steps",
            meta={"option": "from_step", "job_id": str(job_id)},
        )


def not_promotable(job_id: UUID, state: JobState | None, *, waits: bool) -> NotPromotable:
    """Answer why a job cannot be made due: it is unknown (no state), due already, or in a state that is not waiting."""
    if state is None:
        cause = f"there is no job {job_id}."
    elif state in PROMOTABLE_STATES and not waits:
        cause = f"job {job_id} is {state} and due already: it waits for a worker, not for its time."
    else:
        cause = f"job {job_id} is {state}, and only a job that waits for its time can be promoted."
    return NotPromotable(
        cause, fix="rowsweep jobs ls --state delayed --json", meta={"job_id": str(job_id), "state": state}
    )


def check_requeueable(state: JobState | None) -> None:
    """Refuse to requeue a set of live jobs; raises NotRequeueable."""
    if state is not None and state not in REQUEUEABLE_STATES:
        raise NotRequeueable(
            f"jobs that are {state} are live, and only finished ones can be requeued.",
            fix="rowsweep jobs ls --state dead --json",
            meta={"state": state},
        )


def check_removable(state: JobState | None) -> None:
    """Refuse to remove running jobs; raises NotRemovable."""
    if state is not None and state not in REMOVABLE_STATES:
        raise NotRemovable(
            f"jobs that are {state} cannot be removed; cancel them first.",
            fix="rowsweep jobs cancel <id>",
            meta={"state": state},
        )


def check_promotable(state: JobState | None) -> None:
    """Refuse to promote a set of jobs that do not wait for their time; raises NotPromotable."""
    if state is not None and state not in PROMOTABLE_STATES:
        raise NotPromotable(
            f"jobs that are {state} do not wait for their time; those that do are delayed or ready.",
            fix="rowsweep jobs ls --state delayed --json",
            meta={"state": state},
        )
