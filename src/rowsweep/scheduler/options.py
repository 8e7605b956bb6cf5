"""The options of a scheduler, checked in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from rowsweep.errors import InvalidOption
from rowsweep.jobs.tasks.occurrences import Resolver, next_occurrence
from rowsweep.jobs.tasks.registry import registered_tasks
from rowsweep.options import duration
from rowsweep.spelling import spelled

if TYPE_CHECKING:
    from rowsweep.jobs.tasks.handle import TaskHandle
    from rowsweep.scheduler.dispatcher import Dispatched


@spelled
@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """Steer a scheduler.

    `gap` lies between the end of one round and the start of the next. `tasks` are those it fires (default: all that
    this process has declared, asked each round), `cron` resolves their occurrences. `on_dispatched` is called after
    each occurrence that was fired.
    """

    gap: str | timedelta = "1s"
    tasks: Sequence[TaskHandle] | None = None
    cron: Resolver = next_occurrence
    on_dispatched: Callable[[Dispatched], object] | None = None
    drain_on_shutdown: bool = True

    def __post_init__(self) -> None:
        if duration(self.gap, option="gap") <= timedelta(0):
            raise InvalidOption("The option 'gap' must be longer than nothing.", fix='gap="1s"', meta={"option": "gap"})
        if not callable(self.cron):
            raise InvalidOption(
                f"cron must be a function of (cron, tz, after); got {self.cron!r:.80}.",
                fix="cron=next_occurrence",
                meta={"option": "cron"},
            )

    @property
    def gap_seconds(self) -> float:
        """Answer the pause between two rounds."""
        return duration(self.gap, option="gap").total_seconds()

    def chosen_tasks(self) -> Sequence[TaskHandle]:
        """Answer the tasks to fire."""
        return registered_tasks() if self.tasks is None else self.tasks
