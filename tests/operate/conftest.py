"""The driver under test: what an operator sees and does is the same over memory and over Postgres."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rowsweep.operate.operator import Operator
from rowsweep.queue.postgres.driver import PostgresDriver
from rowsweep.queue.postgres.install import install
from tests.queue.conftest import postgres_world, world
from tests.queue.world import World

__all__ = ["postgres_world", "world"]


@pytest.fixture
def operate(world: World) -> Operator:
    """The operator's way into the driver under test."""
    return Operator(world.driver, actor="ann")


@pytest.fixture
def connected(dsn: str) -> Iterator[PostgresDriver]:
    """A driver over a fresh schema, whose tables are installed and empty."""
    install(dsn)
    made = PostgresDriver(dsn)
    yield made
    made.close()
