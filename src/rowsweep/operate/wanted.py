"""What a caller wants to see or move, screened once: filters of lists and of bulk verbs, and ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final
from uuid import UUID

from rowsweep.errors import InvalidOption, did_you_mean
from rowsweep.options import instant, invalid_option, one_of
from rowsweep.queue.records import JOB_STATES, JobFilter, JobState
from rowsweep.queue.selection import JobSet, id_bounds
from rowsweep.telemetry.redact import redact_text
from rowsweep.telemetry.text import is_storable, safe_text

_FILTERS: Final = tuple(field.name for field in fields(JobFilter))
_LONGEST_REASON: Final = 1_000
_INSTANT: Final = "datetime.now(timezone.utc) - timedelta(hours=1)"


def job_filter(where: JobFilter | None, given: Mapping[str, Any]) -> JobFilter:
    """Answer the filter of one call: an object, its keywords, or an object with some keywords put over it.

    Raises InvalidOption.
    """
    unknown = [name for name in given if name not in _FILTERS]
    if unknown:
        raise InvalidOption(
            f"jobs are filtered by {', '.join(_FILTERS)}; not by {unknown[0]!r}.",
            fix=did_you_mean(unknown[0], _FILTERS) or f"remove {unknown[0]}=",
            meta={"option": unknown[0]},
        )
    wanted = replace(where or JobFilter(), **given)
    if wanted.state is not None:
        one_of(wanted.state, JOB_STATES, option="state")
    check_texts(queue=wanted.queue, name=wanted.name, tenant_id=wanted.tenant_id)
    if wanted.id_prefix is not None:
        id_bounds(wanted.id_prefix)
    for name in ("created_from", "created_to"):
        if getattr(wanted, name) is not None:
            instant(getattr(wanted, name), option=name, works=_INSTANT)
    return wanted if wanted.run_id is None else replace(wanted, run_id=id_of(wanted.run_id, option="run_id"))


def id_of(value: UUID | str, *, option: str = "id") -> UUID:
    """Answer an id given as such or as text; raises InvalidOption."""
    try:
        return value if isinstance(value, UUID) else UUID(value)
    except (AttributeError, TypeError, ValueError):
        raise invalid_option(option, "a UUID", value, '"01998f0a-1b2c-7d3e-8f40-123456789abc"') from None


def job_set(
    state: JobState | None, queue: str | None, name: str | None, tenant_id: str | None, *, some: bool = False
) -> JobSet:
    """Answer the set that a bulk verb moves; with `some` one without a filter is refused. Raises InvalidOption."""
    if state is not None:
        one_of(state, JOB_STATES, option="state")
    check_texts(queue=queue, name=name, tenant_id=tenant_id)
    wanted = JobSet(state=state, queue=queue, name=name, tenant_id=tenant_id)
    if some and wanted == JobSet():
        raise InvalidOption(
            "a set needs a filter: a state, a queue, a name or a tenant; none was given.",
            fix='state="done", or name="mail"',
            meta={"option": "state"},
        )
    return wanted


def reason_of(reason: str | None) -> str | None:
    """Answer a reason as it is kept: without passwords, cut at 1,000 characters."""
    if reason is None:
        return None
    if not isinstance(reason, str):
        raise invalid_option("reason", "text", reason, '"the shop is closed"')
    return safe_text(redact_text(reason), _LONGEST_REASON)


def check_texts(*, longest: int | None = None, **given: object) -> None:
    """Refuse what is no text that Postgres can keep, and so names nothing that it holds; raises InvalidOption."""
    for option, text in given.items():
        if text is None or (isinstance(text, str) and is_storable(text) and len(text) <= (longest or len(text))):
            continue
        limit = "" if longest is None else f" of at most {longest} characters"
        raise invalid_option(option, f"text{limit}, without NUL and lone surrogates", text, '"mail"')
