"""What a declaration says of late commits."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, get_args

from rowsweep.options import duration
from rowsweep.sweeps.refusals import refused

if TYPE_CHECKING:
    from rowsweep.sweeps.spec import SweepSpec

Late = Literal["due", "again", "report"]

LATE_WAIT: Final = "1m"


def check_late(spec: SweepSpec) -> None:
    """Screen `late` and `late_wait`."""
    if spec.late not in get_args(Late):
        raise refused("late", '"due", "again" or "report"', spec.late, 'late="due"')
    if spec.late_wait is not None:
        duration(spec.late_wait, option="late_wait")


def longest_wait_seconds(late_wait: str | timedelta | None) -> float | None:
    """Answer for how long open transactions are waited for; None: until they have ended."""
    return None if late_wait is None else duration(late_wait, option="late_wait").total_seconds()
