"""The operator's one way in: read the queue, and steer it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowsweep.operate.reading import Reading

if TYPE_CHECKING:
    from rowsweep.queue.contract import Driver


class Operator(Reading):
    """Read and steer the queue of one driver: `rs.connect().operate`. `actor` is whom its pauses name."""

    def __init__(self, driver: Driver, *, actor: str | None = None) -> None:
        super().__init__(driver)
        self._actor = actor
