"""Where a pass begins, and when it takes a queue for one of few live rows."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rowsweep.jobs.values.json_form import Json
from rowsweep.queue.records import ClaimOptions, ClaimPass
from rowsweep.testing import FakeClock
from rowsweep.worker.claiming.heads import HEAD_SECONDS, SLOW_SECONDS, Heads


class Passes:
    """Passes of one queue: each takes longer than a slow one reads, and the server reads as long as is said."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.heads = Heads(self.clock)

    def make(self, *, few: bool, starts: Json = None, answers: bool | None = None, seconds: float = 0.0) -> None:
        """Make one that asks for few rows or not, and is answered so unless said otherwise."""
        began_at = self.clock.monotonic()
        self.clock.advance(timedelta(seconds=2 * SLOW_SECONDS))
        began = self.heads.starts("default")
        asked = ClaimOptions(queues=["default"], names=["mail"], worker_id="w1", limit=1, starts=began, few=few)
        answer = ClaimPass(jobs=[], starts=starts, few=few if answers is None else answers, read_seconds=seconds)
        self.heads.passed("default", asked, answer, began_at=began_at)


@pytest.fixture
def passes() -> Passes:
    """No pass was made yet."""
    return Passes()


def test_a_queue_has_few_rows_until_a_pass_says_otherwise(passes: Passes) -> None:
    """N-031: what does not pay is asked once a second."""
    assert passes.heads.has_few("default")
    passes.make(few=True, answers=False)
    assert not passes.heads.has_few("default")
    assert passes.heads.has_few("other")
    passes.clock.advance(timedelta(seconds=HEAD_SECONDS))
    assert passes.heads.has_few("default")


def test_a_head_that_is_slow_twice_running_is_walked_once_a_second(passes: Passes) -> None:
    """N-031: dead rows that an old snapshot keeps; one slow look, or a slow way to the server, says nothing of them."""
    for seconds, few in ((2, True), (0, True), (2, True), (2, False)):
        passes.make(few=True, seconds=SLOW_SECONDS * seconds)
        assert passes.heads.has_few("default") == few


def test_a_pass_over_few_rows_begins_at_the_head_and_so_does_the_next(passes: Passes) -> None:
    """N-031: no look is needed within a second, since nothing was passed over."""
    passes.make(few=False, starts=[1])
    passes.make(few=False, starts=[2])
    assert passes.heads.starts("default") == [2]
    assert passes.heads.due_in() is not None
    passes.make(few=True)
    assert passes.heads.starts("default") is None
    assert passes.heads.due_in() is None
