"""Halving a range until the places that fail by themselves are found."""

from __future__ import annotations

from math import log2

from hypothesis import given
from hypothesis import strategies as st

from rowsweep.sweeps.poison.bisection import Bisection


def found(count: int, bad: set[int]) -> tuple[list[int], list[tuple[int, int]], int]:
    """Answer the places found, the ranges done, and how many tries it took."""
    bisection, alone, done, tries = Bisection(count), [], [], 0
    while (bounds := bisection.next()) is not None:
        start, end = bounds
        assert bisection.next() == bounds
        tries += 1
        if bad & set(range(start, end)):
            if bisection.failed():
                alone.append(start)
        else:
            bisection.succeeded()
            done.append(bounds)
    return alone, done, tries


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1))))
def test_exactly_the_bad_places_are_found_and_every_other_is_done_once_in_order(case: tuple[int, set[int]]) -> None:
    """N-084."""
    count, bad = case
    alone, done, tries = found(count, bad)
    assert alone == sorted(bad)
    swept = [place for start, end in done for place in range(start, end)]
    assert swept == [place for place in range(count) if place not in bad]
    assert tries <= max(1, 2 * len(bad) * log2(count))


def test_one_bad_place_costs_at_most_twice_the_logarithm_wherever_it_is() -> None:
    """N-084: the bound on extra savepoints, without a gap."""
    for count in (2, 3, 5, 7, 100, 129, 500, 1_000, 1_025):
        assert max(found(count, {place})[2] for place in range(count)) <= 2 * log2(count)


def test_what_fails_only_together_is_done_in_parts() -> None:
    """N-084: rows are to blame only where they fail by themselves."""
    bisection, tried = Bisection(8), []
    while (bounds := bisection.next()) is not None:
        tried.append(bounds)
        bisection.succeeded()
    assert sum(end - start for start, end in tried) == 8


def test_over_nothing_there_is_nothing_to_try() -> None:
    """N-084."""
    assert Bisection(0).next() is None
