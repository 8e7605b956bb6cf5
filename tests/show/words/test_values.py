"""Numbers, rates and lengths of time."""

from __future__ import annotations

import pytest

from rowsweep.show.words import values


def test_a_count_has_its_thousands_apart() -> None:
    assert values.number(1_234_567) == "1,234,567"


@pytest.mark.parametrize(
    ("per_second", "shown"),
    [
        (0.4, "0.4/s"),
        (0, "0/s"),
        (12.34, "12.3/s"),
        (950, "950/s"),
        (999.7, "1 k/s"),
        (12_345, "12.3 k/s"),
        (123_456, "123 k/s"),
        (1_250_000, "1.25 M/s"),
        (4e9, "4 G/s"),
    ],
)
def test_a_rate_has_three_digits(per_second: float, shown: str) -> None:
    assert values.rate(per_second) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-1, "0.0 s"),
        (0.84, "0.8 s"),
        (9.96, "10 s"),
        (59.7, "1 min"),
        (185, "3 min 5 s"),
        (7_500, "2 h 5 min"),
        (3_600, "1 h"),
        (3_601, "1 h"),
        (187_200, "2 d 4 h"),
        (1e8, "1,157 d 9 h"),
    ],
)
def test_a_length_of_time_is_in_its_two_largest_units(seconds: float, shown: str) -> None:
    assert values.span(seconds) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0.42, "0.4 ms"), (21.4, "21 ms"), (999.7, "1.0 s"), (61_000, "1 min 1 s")]
)
def test_a_batch_is_in_milliseconds_until_it_takes_seconds(value: float, shown: str) -> None:
    assert values.milliseconds(value) == shown


def test_percent_are_rounded_down() -> None:
    assert values.percent(98.99) == "98 %"


def test_no_instant_shows_as_nothing() -> None:
    assert values.instant(None) == ""
