"""The driver under test: what an operator sees and does is the same over memory and over Postgres."""

from __future__ import annotations

import pytest

from rowsweep.operate.operator import Operator
from tests.queue.conftest import postgres_world, world
from tests.queue.world import World

__all__ = ["postgres_world", "world"]


@pytest.fixture
def operate(world: World) -> Operator:
    """The operator's way into the driver under test."""
    return Operator(world.driver, actor="ann")
