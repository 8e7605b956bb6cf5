"""No task is declared before a test of this folder, nor after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rowsweep.jobs.tasks.registry import reset_tasks


@pytest.fixture(autouse=True)
def _no_tasks() -> Iterator[None]:
    reset_tasks()
    yield
    reset_tasks()
