"""The operator's one way in: read the queue, and steer it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowsweep.operate.reading import Reading
from rowsweep.operate.steering import Steering

if TYPE_CHECKING:
    from rowsweep.queue.contract import Driver


class Operator(Reading, Steering):
    """Read and steer the queue of one driver: `rs.connect().operate`. `actor` is whom its pauses name."""

    def __init__(self, driver: Driver, *, actor: str | None = None) -> None:
        Steering.__init__(self, driver, actor=actor)
