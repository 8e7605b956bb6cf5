"""Keyset pages of jobs: cursors as opaque text, and the refusal of those that no page produced."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Final, Protocol
from uuid import UUID

from rowsweep.errors import InvalidPage
from rowsweep.options import count
from rowsweep.queue.selection import JobPosition

DEFAULT_JOB_PAGE: Final = 100
MAX_JOB_PAGE: Final = 200

_VERSION: Final = "1"
_LONGEST: Final = 200
_FIX: Final = f"rowsweep jobs ls --limit {MAX_JOB_PAGE} --json"


class Placed(Protocol):
    """A job, as a record or as a view: what a cursor is made of."""

    @property
    def created_at(self) -> datetime:
        """When it was enqueued."""

    @property
    def id(self) -> UUID | str:
        """Its id."""


def job_cursor(job: Placed) -> str:
    """Answer a job's place in the list as opaque text; it serves also once the job is gone."""
    text = f"{_VERSION} {job.created_at.astimezone(UTC).isoformat(timespec='microseconds')} {job.id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def page_limit(limit: object) -> int:
    """Screen a page's size; raises InvalidOption, and InvalidPage for one beyond `MAX_JOB_PAGE`."""
    size = count(limit, option="limit", minimum=0)
    if size > MAX_JOB_PAGE:
        raise InvalidPage(
            f"a page has at most {MAX_JOB_PAGE} jobs; {size} were asked for.", fix=_FIX, meta={"limit": size}
        )
    return size


def page_bounds(after: str | None, before: str | None) -> tuple[JobPosition | None, JobPosition | None]:
    """Read the cursors of a page; raises InvalidPage for both at once, and for one that no page produced."""
    if after is not None and before is not None:
        raise InvalidPage(
            "a page lies after one cursor or before one; both were given.", fix=_FIX, meta={"cursor": "both"}
        )
    return _position(after, "after"), _position(before, "before")


def _position(cursor: str | None, which: str) -> JobPosition | None:
    if cursor is None:
        return None
    found = _decoded(cursor)
    if found is None:
        raise InvalidPage(
            f"the cursor {which}={cursor!r:.80} is none that a page of jobs answered.", fix=_FIX, meta={"cursor": which}
        )
    return found


def _decoded(cursor: object) -> JobPosition | None:
    """Answer what a cursor says, None where encoding that again gives another text."""
    if not isinstance(cursor, str) or len(cursor) > _LONGEST:
        return None
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode("ascii")
        _, created_at, job_id = text.split(" ")
        found = JobPosition(datetime.fromisoformat(created_at), UUID(job_id))
        return found if job_cursor(found) == cursor else None
    except (ValueError, OverflowError):
        return None
