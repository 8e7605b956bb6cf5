"""Refusals that both drivers give in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowsweep.errors import InvalidOption, NotRequeueable, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

_SHOWN = 10


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
