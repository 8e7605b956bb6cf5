"""A third party's driver, with nothing but what a driver must have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowsweep.queue.contract import Stores

if TYPE_CHECKING:
    from tests.queue.world import World


class Bare:
    """Keep jobs and steps, and nothing else."""

    def __init__(self, world: World) -> None:
        self._driver = world.driver
        self._stores = Stores(jobs=world.jobs, steps=world.steps)

    def stores(self) -> Stores:
        """Answer the two stores that a driver must have."""
        return self._stores

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)
