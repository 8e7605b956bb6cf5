"""The fixtures that ship, as an application's own tests would take them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rowsweep.jobs.registry import reset_jobs
from rowsweep.testing.fixtures import rowsweep_memory, rowsweep_postgres, rowsweep_server

__all__ = ["rowsweep_memory", "rowsweep_postgres", "rowsweep_server"]


@pytest.fixture(autouse=True)
def _nothing_declared() -> Iterator[None]:
    reset_jobs()
    yield
    reset_jobs()
