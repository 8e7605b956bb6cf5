"""The options of a worker, checked in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Final

from rowsweep.errors import InvalidOption, NoQueuesNamed
from rowsweep.jobs.request import check_queue, check_text
from rowsweep.options import count, duration, invalid_option
from rowsweep.queue.records import DEFAULT_QUEUE, DEFAULT_VISIBILITY_SECONDS
from rowsweep.spelling import spelled
from rowsweep.worker.admission.limiter import ConcurrencyLimiter

DEFAULT_CONCURRENCY: Final = 8
_MOST: Final = 100_000


@spelled
@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """Steer a worker.

    It claims what this process has declared; `names` keeps it to some of that.
    `concurrency` is one number for each queue or a table by queue (one that is not in it gets 8). `poll` is the
    longest an idle worker goes without looking, `poll_with_wake` that while commits made elsewhere are heard of,
    `poll_floor` the shortest. `visibility` is how long a claim stands
    without a renewal; three renewals must fit in. `progress_every` is the shortest time between two writes of a run's
    progress. `margin` is how long before the drain's deadline runs are cut off.
    `limiter` bounds this process's runs; one may be shared by several workers.
    A worker's id is fresh for every start; `id` is what it begins with.
    """

    queues: Sequence[str] = (DEFAULT_QUEUE,)
    names: Sequence[str] | None = None
    concurrency: int | Mapping[str, int] = DEFAULT_CONCURRENCY
    id: str | None = None
    poll: str | timedelta = "2s"
    poll_with_wake: str | timedelta = "30s"
    poll_floor: str | timedelta = "500ms"
    visibility: str | timedelta = timedelta(seconds=DEFAULT_VISIBILITY_SECONDS)
    renew_every: str | timedelta | None = None
    margin: str | timedelta = "2s"
    announce_every: str | timedelta = "15s"
    progress_every: str | timedelta = "1s"
    limiter: ConcurrencyLimiter | None = None
    app_version: str | None = None
    drain_on_shutdown: bool = True

    def __post_init__(self) -> None:
        self._check_queues()
        for queue in self.queues:
            count(self.concurrency_of(queue), option=f"concurrency[{queue!r}]", minimum=1, maximum=_MOST)
        if self.names is not None and (isinstance(self.names, str) or not isinstance(self.names, Sequence)):
            raise invalid_option("names", "a sequence of names", self.names, '["mail"]')
        if self.id is not None:
            check_text(self.id, option="id")
        for option in (
            "poll",
            "poll_with_wake",
            "poll_floor",
            "visibility",
            "margin",
            "announce_every",
            "progress_every",
        ):
            duration(getattr(self, option), option=option)
        for option in ("poll", "poll_with_wake", "poll_floor", "visibility", "renew_every"):
            given = getattr(self, option)
            if given is not None and duration(given, option=option) <= timedelta(0):
                raise InvalidOption(
                    f"The option {option!r} must be longer than nothing.",
                    fix=f'{option}="2s"',
                    meta={"option": option},
                )
        if self.limiter is not None and not isinstance(self.limiter, ConcurrencyLimiter):
            raise InvalidOption(
                f"limiter must be a ConcurrencyLimiter; got {self.limiter!r:.80}.",
                fix="limiter=rs.ConcurrencyLimiter(per_tenant=2)",
                meta={"option": "limiter"},
            )
        renewals = 3 * timedelta(seconds=self.renew_seconds)
        if self.renew_every is not None and renewals > timedelta(seconds=self.visibility_seconds):
            raise InvalidOption(
                f"Three renewals must fit in the visibility of {self.visibility_seconds:g} s; "
                f"renew_every is {self.renew_seconds:g} s.",
                fix=f'renew_every="{int(self.visibility_seconds * 1000 / 3)}ms", or a longer visibility',
                meta={"option": "renew_every"},
            )

    @cached_property
    def poll_seconds(self) -> float:
        """Answer the longest interval between two looks."""
        return duration(self.poll, option="poll").total_seconds()

    @cached_property
    def awake_seconds(self) -> float:
        """Answer the longest interval between two looks while a wake is proven."""
        return duration(self.poll_with_wake, option="poll_with_wake").total_seconds()

    @cached_property
    def floor_seconds(self) -> float:
        """Answer the interval after an empty or failed pass, never above the longest one."""
        return min(duration(self.poll_floor, option="poll_floor").total_seconds(), self.poll_seconds)

    @cached_property
    def visibility_seconds(self) -> float:
        """Answer how long a claim stands without a renewal."""
        return duration(self.visibility, option="visibility").total_seconds()

    @cached_property
    def renew_seconds(self) -> float:
        """Answer the interval between two renewals: a third of the visibility unless given."""
        if self.renew_every is None:
            return self.visibility_seconds / 3
        return duration(self.renew_every, option="renew_every").total_seconds()

    @cached_property
    def margin_seconds(self) -> float:
        """Answer how long before the drain's deadline runs are cut off."""
        return duration(self.margin, option="margin").total_seconds()

    @cached_property
    def announce_seconds(self) -> float:
        """Answer the interval between two announcements."""
        return duration(self.announce_every, option="announce_every").total_seconds()

    @cached_property
    def progress_seconds(self) -> float:
        """Answer the shortest time between two writes of one run's progress."""
        return duration(self.progress_every, option="progress_every").total_seconds()

    def concurrency_of(self, queue: str) -> int:
        """Answer how many runs of this queue there are at once; the table is read by key alone."""
        if isinstance(self.concurrency, Mapping):
            return self.concurrency[queue] if queue in self.concurrency else DEFAULT_CONCURRENCY  # noqa: SIM401 - `get` need not say what the key alone does
        return self.concurrency

    def _check_queues(self) -> None:
        named = self.queues
        if isinstance(named, str) or not isinstance(named, Sequence):
            raise InvalidOption(
                f"queues must be a sequence of names; got {named!r:.80}.",
                fix='queues=["default"]',
                meta={"option": "queues"},
            )
        if not named:
            raise NoQueuesNamed("A worker names no queue.", fix='queues=["default"]', meta={"option": "queues"})
        for queue in named:
            check_queue(queue)
        if len(set(named)) != len(named):
            raise InvalidOption(
                f"queues names a queue twice: {list(named)!r:.200}.",
                fix=f"queues={sorted(set(named))!r}",
                meta={"option": "queues"},
            )
