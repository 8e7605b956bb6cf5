"""Executors for tests: threads where only the pass is looked at, processes where the way there and back is."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from tests.sweeps.executors import heavy


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """Four threads of this process: what a test sets in `heavy.hooks` is called there."""
    heavy.hooks.clear()
    with ThreadPoolExecutor(4) as pool:
        yield pool
    heavy.hooks.clear()


def two_processes() -> ProcessPoolExecutor:
    """Make two processes."""
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


@pytest.fixture(scope="module")
def process() -> Iterator[ProcessPoolExecutor]:
    """One process for a module's tests."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool
