"""A site for each test, whose processes are gone afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.acceptance.harness", "tests.acceptance.storm")

from tests.acceptance.harness import Site  # noqa: E402 - only now can its assertions be rewritten


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Callable[[str], Site]]:
    """Make sites over given databases."""
    made: list[Site] = []

    def make(dsn: str) -> Site:
        made.append(Site(dsn, tmp_path))
        return made[-1]

    yield make
    for site in made:
        site.close()


@pytest.fixture
def site(dsn: str, sites: Callable[[str], Site]) -> Site:
    """A site in a fresh schema."""
    return sites(dsn)
