"""How long a job's parts may take: the lengths that a declaration names."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from rowsweep.errors import InvalidOption
from rowsweep.options import duration

Length = str | timedelta
EVENT_POLL: Final = timedelta(seconds=30)


def check_length(length: object, *, option: str) -> timedelta | None:
    """Answer a declared length, None for no limit; InvalidOption where it is no duration longer than nothing."""
    if length is None:
        return None
    chosen = duration(length, option=option)
    if chosen <= timedelta(0):
        raise InvalidOption(
            f"{option} must be longer than nothing; got {length!r:.80}.",
            fix=f'{option}="30s"',
            meta={"option": option},
        )
    return chosen
