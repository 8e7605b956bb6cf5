"""What `on_settled` is told of a job that has ended for good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from rowsweep.errors import InvalidDeclaration

if TYPE_CHECKING:
    from uuid import UUID

SettledOutcome = Literal["completed", "dead-lettered", "dropped", "refused"]
ON_SETTLED_ATTEMPTS: Final = 3
ON_SETTLED_PAUSES: Final = (0.2, 1.0)

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled(Generic[In, Out]):
    """How a job ended for good.

    `job` is its name. `input` is as the body gets it, None where it no longer parses. `result` is the very object that
    the body returned, None unless `completed`. `error` and `code` are what the row keeps: the code of what was raised,
    where it carries one; no code where the worker went away on the last attempt, as nothing was raised.
    """

    outcome: SettledOutcome
    job: str
    job_id: UUID
    run_id: UUID
    attempt: int
    input: In | None
    result: Out | None
    error: str | None
    code: str | None


Hook = Callable[[Settled[Any, Any]], object]


def check_hook(hook: object, *, job: str | None) -> Hook | None:
    """Refuse what cannot be called with a `Settled`."""
    if hook is None or callable(hook):
        return hook
    raise InvalidDeclaration(
        f"on_settled of {job or '(unnamed)'!r} must be a function of a Settled; got {hook!r:.80}.",
        fix="on_settled=lambda settled: print(settled.outcome)",
        meta={"field": "on_settled"},
    )
