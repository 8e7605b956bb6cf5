"""The backoff curve and the delays that errors state."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowsweep.errors import InvalidOption
from rowsweep.jobs.attempts.retry import Retry, backoff_seconds, stated_seconds

SECONDS = st.floats(0, 1e6).map(lambda seconds: timedelta(seconds=seconds))
POLICIES = st.builds(
    Retry, base=SECONDS, factor=st.floats(1, 1e3), max_delay=SECONDS, jitter=st.booleans(), attempts=st.integers(1, 100)
)
CHANCES = st.floats(0, 1, exclude_max=True)


def test_the_defaults_are_the_decided_ones() -> None:
    """D-9, D-15."""
    policy = Retry()
    assert (policy.attempts, policy.base_seconds, policy.factor, policy.max_delay_seconds) == (5, 1.0, 2.0, 300.0)
    assert (policy.jitter, policy.dead_letter) == (True, True)


def test_without_jitter_the_delay_doubles_up_to_its_most() -> None:
    """D-9, S-122."""
    policy = Retry(base="1s", max_delay="10s", jitter=False)
    assert [backoff_seconds(policy, attempt, 0.5) for attempt in range(1, 7)] == [1, 2, 4, 8, 10, 10]


@given(policy=POLICIES, attempt=st.integers(1, 2**31), chance=CHANCES)
def test_a_delay_is_within_its_bound(policy: Retry, attempt: int, chance: float) -> None:
    """D-9: uniform in [0, bound], exactly the bound without jitter, whatever the attempt."""
    delay = backoff_seconds(policy, attempt, chance)
    assert 0 <= delay <= policy.max_delay_seconds
    if not policy.jitter:
        assert delay == backoff_seconds(policy, attempt, 0.0)
    elif chance == 0.0:
        assert delay == 0.0


@given(policy=POLICIES, attempt=st.integers(1, 50), chance=CHANCES)
def test_the_bound_never_shrinks_with_the_attempts(policy: Retry, attempt: int, chance: float) -> None:
    """D-9."""
    assert backoff_seconds(policy, attempt, chance) <= backoff_seconds(policy, attempt + 1, chance)


@given(policy=POLICIES, stated=st.none() | st.floats(-1e9, 1e9), chance=CHANCES)
def test_a_stated_delay_is_capped_and_spread_only_later(policy: Retry, stated: float | None, chance: float) -> None:
    """S-125, S-126, D-10, D-11: by at most a tenth and 30 s; none stated means 30 s, or `max_delay` if shorter."""
    delay = stated_seconds(policy, stated, chance)
    wanted = min(30.0 if stated is None else max(stated, 0.0), policy.max_delay_seconds)
    assert wanted <= delay <= wanted + min(wanted / 10, 30.0)
    if not policy.jitter:
        assert delay == wanted


@pytest.mark.parametrize(
    ("given_options", "option"),
    [
        ({"base": 1}, "retry.base"),
        ({"base": "-1s"}, "retry.base"),
        ({"max_delay": "soon"}, "retry.max_delay"),
        ({"factor": 0.5}, "retry.factor"),
        ({"factor": float("inf")}, "retry.factor"),
        ({"factor": float("nan")}, "retry.factor"),
        ({"factor": "2"}, "retry.factor"),
        ({"jitter": 1}, "retry.jitter"),
        ({"dead_letter": None}, "retry.dead_letter"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(given_options: dict[str, object], option: str) -> None:
    """S-014, S-353, D-35, D-37."""
    with pytest.raises(InvalidOption, match=option):
        Retry(**given_options)  # type: ignore[arg-type]
