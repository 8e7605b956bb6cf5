"""Choosing jobs: a place in their list, an id's beginning, and sets that one call moves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from rowsweep.options import invalid_option
from rowsweep.queue.records import FINISHED_STATES, JOB_STATES

if TYPE_CHECKING:
    from datetime import datetime

    from rowsweep.queue.records import JobState

MAX_BULK_ROWS: Final = 1_000
REQUEUEABLE_STATES: Final[tuple[JobState, ...]] = FINISHED_STATES
PROMOTABLE_STATES: Final[tuple[JobState, ...]] = ("delayed", "ready")
REMOVABLE_STATES: Final[tuple[JobState, ...]] = tuple(state for state in JOB_STATES if state != "running")

_DIGITS: Final = 32
_HEXADECIMAL: Final = re.compile(r"[0-9a-f]{1,32}")


class JobPosition(NamedTuple):
    """A place in the list of jobs, at the database's full precision; the job need not be there any more."""

    created_at: datetime
    id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSet:
    """Choose the rows that a bulk verb moves; None means any that the verb takes."""

    state: JobState | None = None
    queue: str | None = None
    name: str | None = None
    tenant_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkResult:
    """Say how many rows a call moved, and exactly how many another call could still move."""

    affected: int
    remaining: int


def id_bounds(prefix: str) -> tuple[UUID, UUID]:
    """Answer the least and the greatest id that begin with these hexadecimal digits, dashes or not.

    Raises InvalidOption.
    """
    digits = str(prefix).lower().replace("-", "")
    if _HEXADECIMAL.fullmatch(digits) is None:
        raise invalid_option("id_prefix", "1 to 32 hexadecimal digits, with or without dashes", prefix, '"01998f0a"')
    return UUID(hex=digits.ljust(_DIGITS, "0")), UUID(hex=digits.ljust(_DIGITS, "f"))
