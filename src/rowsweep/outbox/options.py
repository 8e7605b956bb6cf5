"""The options of a relay, checked in one place."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from rowsweep.errors import InvalidOption
from rowsweep.options import count, duration
from rowsweep.spelling import spelled


@spelled
@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions:
    """Steer a relay.

    It publishes `batch` rows at a time, under a `lease` after which another relay takes them up. A row that cannot be
    enqueued is tried `attempts` times. `poll` is the longest an idle relay goes without looking, `poll_with_wake` that
    while what is staged is heard of, `poll_floor` the shortest. Published rows of another database than the queue's
    are kept for so long (`keep`); those of the queue's own go with its purge.
    """

    batch: int = 100
    lease: str | timedelta = "30s"
    attempts: int = 20
    poll: str | timedelta = "2s"
    poll_with_wake: str | timedelta = "30s"
    poll_floor: str | timedelta = "500ms"
    keep: str | timedelta = "7d"
    drain_on_shutdown: bool = True

    def __post_init__(self) -> None:
        count(self.batch, option="batch", minimum=1, maximum=1_000)
        count(self.attempts, option="attempts", minimum=1, maximum=1_000_000)
        duration(self.keep, option="keep")
        for option in ("lease", "poll", "poll_with_wake", "poll_floor"):
            if duration(getattr(self, option), option=option) <= timedelta(0):
                raise InvalidOption(
                    f"The option {option!r} must be longer than nothing.",
                    fix=f'{option}="30s"',
                    meta={"option": option},
                )

    @property
    def keep_span(self) -> timedelta:
        """Answer how long published rows of another database are kept."""
        return duration(self.keep, option="keep")

    def seconds(self, option: str) -> float:
        """Answer one of the spans in seconds."""
        return duration(getattr(self, option), option=option).total_seconds()
