"""A declared task: when it is due, and what it then puts on the queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from rowsweep.clock import SystemClock
from rowsweep.errors import InvalidDeclaration, InvalidOption
from rowsweep.jobs import ambient
from rowsweep.jobs.handle import JobHandle
from rowsweep.jobs.request import EnqueueOptions

if TYPE_CHECKING:
    from rowsweep.jobs.origin import Origin
    from rowsweep.jobs.request import EnqueueResult, NewJob

CatchUp = Literal["skip", "run-once", "run-all"]
CATCH_UPS: Final[tuple[CatchUp, ...]] = ("skip", "run-once", "run-all")
Entry = tuple[JobHandle[Any, Any], Any]
Entries = Callable[[datetime], Sequence[tuple[Any, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """What a declaration says besides its name."""

    cron: str
    tz: str
    enqueue: Entries
    catch_up: CatchUp = "skip"
    max_catch_up: int = 10


class TaskHandle:
    """A declared task. The scheduler fires it; `enqueue()` does so now.

    `named` says that its declaration named it, `stamped` that a registration did.
    """

    def __init__(self, name: str, options: TaskOptions, *, origin: Origin, named: bool) -> None:
        self.name = name
        self.named = named
        self.stamped = False
        self.origin = origin
        self.options = options

    def __repr__(self) -> str:
        return f"<task {self.name!r}>"

    @property
    def kind(self) -> str:
        """Answer `task`."""
        return "task"

    @property
    def cron(self) -> str:
        """The expression as declared: five fields, or an alias."""
        return self.options.cron

    @property
    def tz(self) -> str:
        """The IANA id of the zone whose clocks the cron is about."""
        return self.options.tz

    @property
    def catch_up(self) -> CatchUp:
        """What becomes of occurrences that were missed: `skip`, `run-once` or `run-all`."""
        return self.options.catch_up

    @property
    def max_catch_up(self) -> int:
        """How many missed occurrences `run-all` makes up for at most."""
        return self.options.max_catch_up

    def stamp(self, name: str) -> None:
        """Give an unnamed task the name it is registered under."""
        self.name = name
        self.stamped = True

    def entries(self, at: datetime | None = None) -> list[Entry]:
        """Answer the jobs of an occurrence (default: now), each with its input, in declaration order.

        Raises what the declared function raises, and InvalidDeclaration where it answers anything but such pairs.
        """
        if at is not None and at.tzinfo is None:
            raise InvalidOption(
                f"at must be an aware datetime; got {at!r}.",
                fix="at=datetime(2025, 1, 1, tzinfo=UTC)",
                meta={"option": "at"},
            )
        answered: Any = self.options.enqueue(SystemClock().now() if at is None else at.astimezone(UTC))
        if not isinstance(answered, Sequence) or isinstance(answered, str | bytes):
            raise self._not_pairs(answered)
        return [self._checked(entry) for entry in answered]

    def enqueue(self, options: EnqueueOptions | None = None, /, **given: Any) -> list[tuple[Any, EnqueueResult]]:
        """Put the jobs of an occurrence that is due now on the queue, all or none; answer each job with its result.

        Asks neither scheduler nor watermark, and takes the options of a job's `enqueue`. The jobs keep their plain
        keys, so they never stand for an occurrence's.
        """
        chosen = EnqueueOptions.of(options, given)
        entries = self.entries()
        requests = [job.request(value, chosen) for job, value in entries]
        enqueuer = ambient.enqueuer()
        results = enqueuer.enqueue(requests, tx=chosen.tx, outbox=chosen.outbox) if requests else []
        return [(job, result) for (job, _), result in zip(entries, results, strict=True)]

    def requests(self, at: datetime) -> list[NewJob]:
        """Answer what an occurrence asks of the driver, keyed `<task>:<occurrence>:<job key>`."""
        made = []
        for position, (job, value) in enumerate(self.entries(at)):
            request = job.request(value, EnqueueOptions())
            own = str(position) if job.options.key is None else request.idempotency_key
            made.append(replace(request, idempotency_key=f"{self.name}:{occurrence_text(at)}:{own}"))
        return made

    def describe(self) -> dict[str, Any]:
        """Answer the declaration as plain JSON; `jobs` are those of an occurrence that is due now."""
        return {
            "kind": self.kind,
            "name": self.name,
            "cron": self.cron,
            "tz": self.tz,
            "catch_up": self.catch_up,
            "max_catch_up": self.max_catch_up,
            "jobs": [job.name for job, _ in self.entries()],
        }

    def _checked(self, entry: Any) -> Entry:
        if not isinstance(entry, tuple | list) or len(entry) != 2 or not isinstance(entry[0], JobHandle):
            raise self._not_pairs(entry)
        return entry[0], entry[1]

    def _not_pairs(self, answered: object) -> InvalidDeclaration:
        return InvalidDeclaration(
            f"enqueue of the task {self.name!r} must answer a list of (job, input) pairs; got {answered!r:.120}.",
            fix="enqueue=lambda at: [(job, None)]",
            meta={"field": "enqueue", "name": self.name},
        )


def occurrence_text(at: datetime) -> str:
    """Answer an occurrence as keys and logs show it: `2025-01-31T09:00:00Z`."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z"
