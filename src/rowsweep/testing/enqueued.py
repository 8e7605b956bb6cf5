"""Assert what is on the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rowsweep.app.connecting import current
from rowsweep.spelling import spelled

if TYPE_CHECKING:
    from rowsweep.app.app import App
    from rowsweep.jobs.handle import JobHandle
    from rowsweep.operate.views import JobView

ANY: Final = object()
_MOST_LOOKED_AT: Final = 10_000
_SHOWN: Final = 5


@spelled
def assert_enqueued(
    job: JobHandle[Any, Any] | str, input: Any = ANY, *, count: int | None = None, app: App | None = None, **fields: Any
) -> list[JobView]:
    """Assert that jobs of this name are on the queue, and answer them, newest first.

    `input` is what was given to enqueue, compared in its JSON form; `fields` are compared with the columns of the job
    (`state="ready"`, `queue=…`, `priority=…`, `tenant_id=…`, `idempotency_key=…`). At least one must match, or exactly
    `count`; `count=0` asserts that none does. Finished jobs count too. Raises AssertionError, saying what is there.
    """
    __tracebackhide__ = True
    connected = app or current()
    name = job if isinstance(job, str) else job.name
    wanted = input if input is ANY or isinstance(job, str) else job.options.input.dump(input)[1]
    found = list(connected.operate.walk(name=name, limit=_MOST_LOOKED_AT))
    unknown = [field for field in fields if found and not hasattr(found[0], field)]
    if unknown:
        msg = f"a job has no field {unknown[0]!r}"
        raise TypeError(msg)
    matching = [
        one
        for one in found
        if (wanted is ANY or one.input == wanted)
        and all(getattr(one, field) == value for field, value in fields.items())
    ]
    if len(matching) == count or (count is None and matching):
        return matching
    raise AssertionError(_words(name, input, fields, count, matching=len(matching), found=found))


def _words(
    name: str, input: Any, fields: dict[str, Any], count: int | None, *, matching: int, found: list[JobView]
) -> str:
    described = [] if input is ANY else [f"input={input!r}"]
    described += [f"{field}={value!r}" for field, value in fields.items()]
    expected = "at least one job" if count is None else f"{count} jobs"
    there = "".join(f"\n  {one.state}, queue {one.queue!r}, input {one.input!r}" for one in found[:_SHOWN])
    more = f"\n  and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return (
        f"expected {expected} {name!r} with {', '.join(described) or 'any input'}, found {matching}. "
        f"On the queue under that name: {len(found) or 'none'}{there}{more}"
    )
