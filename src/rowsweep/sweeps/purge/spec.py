"""What a purge's declaration says, screened."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from rowsweep.options import count, duration, finite
from rowsweep.sweeps.spec import PassSpec, code_of, refused

_MOST_ROWS: Final = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much one pass may do: `time` at work and `rows` removed, whichever is reached first."""

    time: str | timedelta = "10m"
    rows: int = 5_000_000

    def __post_init__(self) -> None:
        if duration(self.time, option="time") <= timedelta(0):
            raise refused("budget", "some time", self.time, 'budget=rs.Budget(time="10m")')
        count(self.rows, option="rows", minimum=1, maximum=_MOST_ROWS)

    @property
    def seconds(self) -> float:
        """The time in seconds."""
        return duration(self.time, option="time").total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeSpec(PassSpec):
    """What is purged and how; `confirm` is the largest share of a table that one purge may be about to remove."""

    targets: Callable[[], Sequence[Any]]
    budget: Budget = field(default_factory=Budget)
    confirm: float | None = None

    def __post_init__(self) -> None:
        targets: object = self.targets
        if not callable(targets) or inspect.iscoroutinefunction(targets):
            raise refused(
                "targets",
                "a function that answers the targets, called when the purge runs",
                self.targets,
                'targets=lambda: [rs.older_than("events", "created_at", days=90)]',
            )
        if not isinstance(self.budget, Budget):
            raise refused("budget", "a Budget", self.budget, 'budget=rs.Budget(time="10m", rows=5_000_000)')
        if self.confirm is not None:
            finite(self.confirm, option="confirm", minimum=0.0, maximum=1.0)
        PassSpec.__post_init__(self)


def checksum(spec: PurgeSpec) -> str:
    """Answer the SHA-256 over the code of the targets' function."""
    parts = {"kind": "purge", "targets": code_of(spec.targets)}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
