"""Reading Retry-After (RFC 9110, 10.2.3)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECONDS: Final = re.compile(r"[0-9]+")
_LONGEST: Final = timedelta(days=3650).total_seconds()


def retry_after_seconds(headers: Mapping[str, str], now: datetime) -> float | None:
    """Answer the pause that a response asks for, in seconds; None where it states none, or one that is over.

    A date counts from the response's own Date, so that no clock but the sender's matters; without one from `now`.
    """
    stated = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(stated):
        seconds = min(float(stated), _LONGEST)
        return seconds if seconds > 0 else None
    until = _instant(stated)
    if until is None:
        return None
    seconds = (until - (_instant(headers.get("date", "")) or now)).total_seconds()
    return min(seconds, _LONGEST) if seconds > 0 else None


def _instant(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text.strip())
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
