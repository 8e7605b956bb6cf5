"""What a declaration says about its steps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rowsweep.jobs.limits import EVENT_POLL

if TYPE_CHECKING:
    from rowsweep.jobs.handle import JobOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """Steer a run's steps; each field is the declaration's option of that name.

    `step_timeout` is the longest one step's body may take. `event_poll` is how long a run parks on an event where the
    driver keeps no workers, whose looks would poll for all parked runs at once.
    """

    step_timeout: timedelta | None = None
    event_poll: timedelta = EVENT_POLL

    @classmethod
    def of(cls, declared: JobOptions) -> StepOptions:
        """Take them from a job's declaration."""
        if declared.step_timeout is None and declared.event_poll is EVENT_POLL:
            return _DEFAULT
        return cls(step_timeout=declared.step_timeout, event_poll=declared.event_poll)


_DEFAULT: Final = StepOptions()
