"""`task()`: declare a task."""

from __future__ import annotations

from typing import Any

from rowsweep.errors import InvalidDeclaration, did_you_mean
from rowsweep.jobs.origin import origin_of
from rowsweep.jobs.registry import check_name
from rowsweep.jobs.tasks import registry
from rowsweep.jobs.tasks.cron import cron_of
from rowsweep.jobs.tasks.handle import CATCH_UPS, CatchUp, Entries, TaskHandle, TaskOptions
from rowsweep.jobs.tasks.zone import zone_of
from rowsweep.options import count
from rowsweep.spelling import spelled

_MOST_CATCH_UP = 1_000


@spelled
def task(
    name: str | None = None,
    *,
    cron: str = "",
    tz: str = "",
    enqueue: Entries | None = None,
    catch_up: CatchUp = "skip",
    max_catch_up: int = 10,
) -> TaskHandle:
    """Declare a task: at each occurrence of the cron in the zone, the scheduler enqueues what `enqueue(at)` answers.

    `cron` has five fields or is an alias such as `@daily`; it, `tz` and `enqueue` are required. `tz` is an IANA id:
    without a zone, a schedule runs twice or never on the day the clocks switch. `enqueue` gets the occurrence's own
    instant (aware, UTC) and answers `(job, input)` pairs in order. Of occurrences missed while no scheduler ran,
    `skip` fires the latest, `run-once` the earliest in place of all, `run-all` each of the newest `max_catch_up`.
    Each occurrence fires once, through crashes too; what it enqueues follows the jobs' own rules. A task seen for
    the first time waits for its next occurrence. Declaring the name again from the same place replaces the
    declaration.

    Raises InvalidDeclaration, DuplicateJob.
    """
    shown = repr(name) if name is not None else "without a name"
    if name is not None:
        check_name(name, kind="task")
    if enqueue is None:
        raise _refused(f"The task {shown} names nothing to enqueue.", "enqueue=lambda at: [(job, None)]", "enqueue")
    if not callable(enqueue):
        raise _refused(f"enqueue of the task {shown} must be a function of the occurrence; got {enqueue!r:.80}.",
                       "enqueue=lambda at: [(job, None)]", "enqueue")  # fmt: skip
    if catch_up not in CATCH_UPS:
        raise _refused(f"catch_up of the task {shown} must be one of {', '.join(CATCH_UPS)}; got {catch_up!r:.80}.",
                       did_you_mean(str(catch_up), CATCH_UPS) or 'catch_up="skip"', "catch_up")  # fmt: skip
    options = TaskOptions(
        cron=_cron(cron, shown),
        tz=_tz(tz, shown),
        enqueue=enqueue,
        catch_up=catch_up,
        max_catch_up=count(max_catch_up, option="max_catch_up", minimum=1, maximum=_MOST_CATCH_UP),
    )
    chosen = registry.anonymous_name() if name is None else name
    handle = TaskHandle(chosen, options, origin=origin_of(enqueue), named=name is not None)
    registry.declare(handle)
    return handle


def _cron(cron: Any, shown: str) -> str:
    if cron == "":
        raise _refused(f"The task {shown} names no cron.", 'cron="0 9 * * *"', "cron")
    if not isinstance(cron, str):
        raise _refused(f"cron of the task {shown} must be text; got {cron!r:.80}.", 'cron="0 9 * * *"', "cron")
    try:
        cron_of(cron)
    except InvalidDeclaration as error:
        raise _refused(f"The task {shown}: {error.cause}", error.fix, "cron") from None
    return cron


def _tz(tz: Any, shown: str) -> str:
    if tz is None or tz == "":
        raise _refused(f"The task {shown} names no time zone.", 'tz="UTC", or another IANA id', "tz")
    if not isinstance(tz, str):
        raise _refused(
            f"tz of the task {shown} must be an IANA id as text; got {tz!r:.80}.", 'tz="Europe/London"', "tz"
        )
    try:
        zone_of(tz)
    except InvalidDeclaration as error:
        raise _refused(f"The task {shown}: {error.cause}", error.fix, "tz") from None
    return tz


def _refused(cause: str, fix: str, field: str) -> InvalidDeclaration:
    return InvalidDeclaration(cause, fix=fix, meta={"field": field})
