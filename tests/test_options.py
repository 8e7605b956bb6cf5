"""Options: one parser each, exact types out, and refusals whose fix works."""

from __future__ import annotations

import numbers
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rowsweep.errors import InvalidOption
from rowsweep.options import Rate, count, duration, finite, format_duration, instant, one_of, rate


class Int64:
    """Stand for an integral NumPy number, which registers itself in the same way."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __int__(self) -> int:
        return self.value

    def __float__(self) -> float:
        return float(self.value)


numbers.Integral.register(Int64)
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=30),
    st.text(alphabet="0123456789.smhd /", max_size=12),
    st.timedeltas(),
    st.binary(max_size=5),
    st.lists(st.integers(), max_size=3),
    st.just(10**5000),
    st.just("9" * 400 + "d"),
)


def fix_of(error: InvalidOption) -> object:
    name, _, code = error.fix.partition("=")
    assert name == error.meta["option"]
    return eval(code, {"__builtins__": {}})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("10s", 10),
        ("1.5s", 1.5),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1m500ms", 60.5),
        ("0s", 0),
    ],
)
def test_duration_text_is_parts_of_number_and_unit(text: str, seconds: float) -> None:
    """N-003, S-014."""
    assert duration(text, option="timeout") == timedelta(seconds=seconds)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(36_500)))
def test_a_formatted_duration_reads_back_as_the_same_length(value: timedelta) -> None:
    """N-003."""
    assert duration(format_duration(value), option="timeout") == value


@pytest.mark.parametrize(
    "value",
    [
        "2026-01-01",
        datetime(2026, 1, 1),  # noqa: DTZ001 - refused for that
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
    ],
    ids=str,
)
def test_an_instant_that_could_not_be_read_again_is_refused(value: object) -> None:
    """D-37, S-085: the year 10000 in UTC is stored, and every list that it is in fails."""
    with pytest.raises(InvalidOption) as refused:
        instant(value, option="run_at", works="soon")
    assert refused.value.fix == "run_at=soon"
    for kept in (datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)):
        assert instant(kept, option="run_at", works="soon") == kept


def test_a_kind_of_timedelta_comes_back_as_a_plain_one() -> None:
    class Span(timedelta):
        pass

    assert type(duration(Span(seconds=1), option="timeout")) is timedelta
    assert format_duration(timedelta(seconds=-90)) == "-1m30s"


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        (10, 'timeout="10s"'),
        ("10", 'timeout="10s"'),
        (2.5, 'timeout="2.5s"'),
        ("5 minutes", 'timeout="5m"'),
        ("1h 30min", 'timeout="1h30m"'),
        ("10S", 'timeout="10s"'),
        (float("nan"), 'timeout="10s"'),
        (float("inf"), 'timeout="10s"'),
        (timedelta(seconds=-1), 'timeout="10s"'),
        ("-5s", 'timeout="10s"'),
        (True, 'timeout="10s"'),
        (None, 'timeout="10s"'),
        ("", 'timeout="10s"'),
        ("٣s", 'timeout="10s"'),
        ("36501d", 'timeout="36500d"'),
        (timedelta.max, 'timeout="36500d"'),
        ("9999999999999999999d", 'timeout="36500d"'),
    ],
)
def test_a_duration_without_a_unit_is_refused_with_the_near_miss(value: object, fix: str) -> None:
    """N-003, D-37."""
    with pytest.raises(InvalidOption) as refused:
        duration(value, option="timeout")
    assert refused.value.fix == fix
    assert "'timeout'" in refused.value.cause


@pytest.mark.parametrize(
    ("text", "expected"), [("2000/s", Rate(2000, 1)), ("100/min", Rate(100, 60)), ("5/h", Rate(5, 3600))]
)
def test_a_rate_is_a_count_and_a_period(text: str, expected: Rate) -> None:
    """N-003."""
    assert rate(text, option="rate") == expected
    assert rate(expected, option="rate") is expected
    assert str(expected) == text
    assert expected.per_second == expected.count / expected.per_seconds


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        (2000, 'rate="2000/s"'),
        (2000.0, 'rate="2000/s"'),
        ("2_000 / sec", 'rate="2000/s"'),
        ("5 per minute", 'rate="5/min"'),
        (0.5, 'rate="30/min"'),
        ("10/m", 'rate="10/min"'),
        ("0/s", 'rate="2000/s"'),
        ("10/d", 'rate="2000/s"'),
        (Int64(7), 'rate="7/s"'),
        (True, 'rate="2000/s"'),
    ],
)
def test_a_rate_without_a_period_is_refused_with_the_near_miss(value: object, fix: str) -> None:
    """N-003, D-37: `rate=2000` → `rate="2000/s"`."""
    with pytest.raises(InvalidOption) as refused:
        rate(value, option="rate")
    assert refused.value.fix == fix


@pytest.mark.parametrize(("count", "per_seconds"), [(0, 1), (1, 0), (True, 1), (1.5, 1), (1, float("nan"))])
def test_a_rate_made_by_hand_is_screened_too(count: int, per_seconds: int) -> None:
    """S-354."""
    with pytest.raises(InvalidOption):
        Rate(count, per_seconds)


@pytest.mark.parametrize("value", [True, "1", float("nan"), float("inf"), float("-inf"), None, 10**400, 1j, -0.1, 9.5])
def test_a_bound_that_is_not_a_finite_number_in_range_is_refused(value: object) -> None:
    """S-353, D-35."""
    with pytest.raises(InvalidOption):
        finite(value, option="factor", minimum=0, maximum=9)


def test_a_bound_comes_back_as_a_plain_float() -> None:
    """S-353."""
    for value in (2, 2.0, Int64(2), Fraction(2)):
        got = finite(value, option="factor", minimum=2)
        assert (type(got), got) == (float, 2.0)


@pytest.mark.parametrize("value", [True, "3", 3.0, float("nan"), None, -1, Fraction(3), 6])
def test_a_count_that_is_not_a_whole_number_in_range_is_refused(value: object) -> None:
    """S-353, S-355, D-35."""
    with pytest.raises(InvalidOption):
        count(value, option="limit", minimum=0, maximum=5)


def test_a_count_comes_back_as_a_plain_int() -> None:
    """D-35."""

    class Size(IntEnum):
        SMALL = 3

    for value in (3, Int64(3), Size.SMALL):
        got = count(value, option="limit", minimum=0)
        assert (type(got), got) == (int, 3)
    assert count(0, option="limit", minimum=0) == 0


def test_a_refusal_names_option_expectation_what_came_and_the_near_miss() -> None:
    """D-37."""
    with pytest.raises(InvalidOption) as refused:
        count("7", option="batch_rows", minimum=1)
    assert refused.value.cause == ("The option 'batch_rows' must be a whole number of at least 1; it was '7' (str).")
    assert refused.value.fix == "batch_rows=7"
    assert refused.value.retry == "terminal"


def test_a_word_that_is_nearly_right_is_refused_with_the_right_one() -> None:
    """D-37."""

    class Until(StrEnum):
        END = "end"

    assert one_of("end", ["end", "start"], option="until") == "end"
    assert type(one_of(Until.END, ["end", "start"], option="until")) is str
    with pytest.raises(InvalidOption) as refused:
        one_of("strat", ["end", "start"], option="until")
    assert refused.value.fix == 'until="start"'


def test_an_option_whose_repr_raises_is_still_refused_in_words() -> None:
    """S-132."""

    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(InvalidOption, match="repr raises RuntimeError"):
        count(Rude(), option="limit", minimum=0)


@given(ANYTHING)
@example("1000000H")
def test_whatever_comes_is_taken_or_refused_with_a_fix_that_is_taken(value: object) -> None:
    """D-37: the near miss always works."""
    for parse in (
        lambda v: duration(v, option="x"),
        lambda v: rate(v, option="x"),
        lambda v: finite(v, option="x", minimum=-2, maximum=2.5),
        lambda v: finite(v, option="x"),
        lambda v: count(v, option="x", minimum=1),
        lambda v: count(v, option="x", minimum=0, maximum=9),
        lambda v: one_of(v, ["a", "b"], option="x"),
    ):
        try:
            parse(value)
        except InvalidOption as error:
            parse(fix_of(error))
