"""What a raised error means for its job."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowsweep import errors
from rowsweep.errors import DeliveryThrottled, InvalidInput, KeyBusy, LeaseLost, Overloaded, RateLimited, TimedOut
from rowsweep.jobs.attempts.classify import Again, Stop, classify, decide
from rowsweep.jobs.attempts.retry import Retry, backoff_seconds

STEADY = Retry(base="10s", max_delay="1m", jitter=False)


class Declared(Exception):
    """An application's error with a class."""

    def __init__(self, retry: Any, retry_after_seconds: Any = None) -> None:
        super().__init__("declared")
        self.retry = retry
        self.retry_after_seconds = retry_after_seconds


class Hostile(Exception):
    """An error whose attributes raise."""

    @property
    def retry(self) -> str:
        raise RuntimeError

    @property
    def retry_after_seconds(self) -> float:
        raise RuntimeError


def decided(error: BaseException, *, attempt: int = 1, policy: Retry = STEADY, chance: float = 0.5) -> Again | Stop:
    return decide(error, attempt=attempt, max_attempts=5, policy=policy, chance=chance)


@pytest.mark.parametrize("kind", ["terminal", "retry-after", "retryable"])
def test_an_application_s_error_declares_its_class(kind: str) -> None:
    """D-12."""
    assert classify(Declared(kind)) == kind


def validation_error() -> Exception:
    with pytest.raises(pydantic.ValidationError) as caught:
        pydantic.TypeAdapter(int).validate_python("x")
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        ValueError(),
        KeyError("retry"),
        PermissionError(),
        ExceptionGroup("many", [ValueError()]),
        validation_error(),
        SystemExit(1),
        Declared(None),
        Hostile(),
        LeaseLost("lost", fix="rowsweep jobs show 1"),
    ],
)
def test_other_errors_are_unclassified_and_follow_the_curve(error: BaseException) -> None:
    """S-130, D-12: unknown never means terminal."""
    assert classify(error) is None
    assert decided(error, attempt=2) == Again(delay_seconds=20.0)
    assert decided(error, attempt=5) == Stop(stop_reason="attempts")


def test_every_code_of_the_package_has_the_class_of_the_table() -> None:
    """D-12, N-114: a sample of each class; the whole table is held by the errors' own tests."""
    assert classify(InvalidInput("x", fix="y")) == "terminal"
    assert classify(TimedOut("x", fix="y")) == "retryable"
    assert classify(Overloaded("x", fix="y", retry_after_seconds=1.0)) == "retry-after"
    assert {errors.Draining.retry, errors.TimedOut.retry} == {"retryable"}


def test_a_terminal_error_stops_on_its_attempt() -> None:
    """S-123, S-124."""
    for error in (KeyBusy("busy", fix='when_busy="wait"'), Declared("terminal"), InvalidInput("x", fix="y")):
        assert decided(error) == Stop(stop_reason="terminal")
        assert decided(error, attempt=5) == Stop(stop_reason="terminal")


def test_a_retry_after_error_waits_as_stated_and_counts() -> None:
    """S-125, S-127: capped by the policy; the curve is asked only where nothing usable is stated."""
    assert decided(Overloaded("x", fix="y", retry_after_seconds=7.0)) == Again(delay_seconds=7.0)
    assert decided(Declared("retry-after", 700)) == Again(delay_seconds=60.0)
    assert decided(Declared("retry-after"), attempt=3) == Again(delay_seconds=40.0)
    assert decided(Overloaded("x", fix="y", retry_after_seconds=7.0), attempt=5) == Stop(stop_reason="attempts")


def test_a_delay_stated_by_an_error_of_another_class_is_not_asked() -> None:
    """S-129, S-125."""
    assert decided(Declared("retryable", 700)) == Again(delay_seconds=10.0)


@pytest.mark.parametrize("stated", [float("nan"), float("inf"), -5, 0, "5", True, 10**400, [5]])
def test_a_delay_that_is_no_delay_is_not_taken(stated: Any) -> None:
    """S-125, D-10."""
    assert decided(Declared("retry-after", stated)) == Again(delay_seconds=10.0)


@pytest.mark.parametrize("attempt", [1, 5, 50])
def test_a_rate_limit_is_deferred_uncounted_on_any_attempt(attempt: int) -> None:
    """S-127, S-128, D-10: decided before terminal and before the curve, without limit."""
    limited = RateLimited("full", fix="wait", retry_after_seconds=3.0)
    assert decided(limited, attempt=attempt) == Again(delay_seconds=3.0, counted=False)
    limited.retry_after_seconds = None
    assert decided(limited, attempt=attempt) == Again(delay_seconds=30.0, counted=False)
    short = Retry(max_delay="5s", jitter=False)
    assert decided(limited, attempt=attempt, policy=short) == Again(delay_seconds=5.0, counted=False)


def test_a_throttled_delivery_counts() -> None:
    """S-127: only `X_RATE_LIMITED` is uncounted."""
    throttled = DeliveryThrottled("slow", fix="wait", retry_after_seconds=3.0)
    assert decided(throttled) == Again(delay_seconds=3.0)


def test_another_class_is_ignored_with_one_warning() -> None:
    """D-12: once a class of errors, so a queue full of them does not fill the log."""

    class Mine(Declared):
        pass

    with pytest.warns(UserWarning, match="Mine.retry is 'never'; expected one of terminal"):
        assert classify(Mine("never")) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert classify(Mine("never")) is None


def test_a_warning_that_is_an_error_does_not_reach_the_run() -> None:
    """D-12: under `-W error` the failed attempt must still be settled."""

    class Mine(Declared):
        pass

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decided(Mine(5)) == Again(delay_seconds=10.0)


def test_a_class_that_was_warned_of_can_be_forgotten() -> None:
    """D-12: a notebook makes classes anew with each run of a cell."""

    class Mine(Declared):
        pass

    with pytest.warns(UserWarning, match="a list"):
        classify(Mine([]))
    gone = weakref.ref(Mine)
    del Mine
    gc.collect()
    assert gone() is None


@given(
    attempt=st.integers(1, 10),
    kind=st.sampled_from([None, "retryable", "retry-after", "terminal"]),
    stated=st.none() | st.floats(),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_every_decision_is_one_of_the_rules(
    attempt: int, kind: str | None, stated: float | None, chance: float
) -> None:
    """S-122 to S-130, as one rule."""
    policy = Retry(base="3s", max_delay="2m")
    decision = decide(Declared(kind, stated), attempt=attempt, max_attempts=5, policy=policy, chance=chance)
    if kind == "terminal":
        assert decision == Stop(stop_reason="terminal")
    elif attempt >= 5:
        assert decision == Stop(stop_reason="attempts")
    else:
        assert isinstance(decision, Again)
        assert decision.counted
        if kind == "retry-after" and stated is not None and 0 < stated < float("inf"):
            assert min(stated, 120) <= decision.delay_seconds <= min(stated, 120) * 1.1
        else:
            assert decision.delay_seconds == backoff_seconds(policy, attempt, chance)
