"""Repeating a bulk verb until nothing is left of what there was at first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from rowsweep.queue.selection import MAX_BULK_ROWS

if TYPE_CHECKING:
    from rowsweep.queue.selection import BulkResult

PATIENCE: Final = 20
_PAUSE_SECONDS: Final = 0.25


def until_zero(
    move: Callable[[int], BulkResult], *, sleep: Callable[[float], object] = time.sleep
) -> Iterator[BulkResult]:
    """Call `move` with a limit, answering each call's result, until nothing is left.

    No more rows are moved in all than there were at first: requeued jobs that die again meanwhile do not keep it going.
    Rows that others have locked are asked for again for five seconds; the last result says what remained of them.
    """
    left, patience = move(0).remaining, PATIENCE
    while left > 0 and patience > 0:
        result = move(min(left, MAX_BULK_ROWS))
        yield result
        left = min(left - result.affected, result.remaining)
        patience = PATIENCE if result.affected else patience - 1
        if left > 0 and not result.affected:
            sleep(_PAUSE_SECONDS)
