"""Random lives of staged jobs: both drivers answer as a small model does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.queue.conftest import empty_world
from tests.queue.world import World, new_job

LEASE, DELAY, ATTEMPTS = 30, 60, 3
RELAYS = st.sampled_from(["r1", "r2"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("stage"), st.integers(1, 3)),
        st.tuples(st.just("claim"), RELAYS, st.integers(1, 3)),
        st.tuples(st.just("publish"), RELAYS, st.integers(0, 7)),
        st.tuples(st.just("refuse"), RELAYS, st.integers(0, 7)),
        st.tuples(st.just("release"), RELAYS, st.integers(0, 7)),
        st.tuples(st.just("retry"), st.sampled_from([None, 0, 1, 2, 3])),
        st.tuples(st.just("pass"), st.sampled_from([20, 45, 90])),
    ),
    max_size=25,
)


@dataclass
class Row:
    """One staged job of the model."""

    holder: str | None = None
    due_in: float | None = None
    attempts: int = 0
    state: str = "pending"


@dataclass
class Model:
    """What the outbox should hold: rows by the order they were staged in."""

    rows: list[Row] = field(default_factory=list)

    def claim(self, relay: str, limit: int) -> list[int]:
        due = [at for at, row in enumerate(self.rows) if row.state == "pending" and (row.due_in or 0) <= 0][:limit]
        for at in due:
            self.rows[at].holder, self.rows[at].due_in = relay, LEASE
        return due

    def mine(self, relay: str, at: int) -> Row | None:
        row = self.rows[at] if at < len(self.rows) else None
        return row if row is not None and row.state == "pending" and row.holder == relay else None

    def publish(self, relay: str, at: int) -> list[int]:
        row = self.mine(relay, at)
        if row is None:
            return []
        row.state, row.holder, row.due_in = "published", None, None
        return [at]

    def refuse(self, relay: str, at: int) -> tuple[int, str] | None:
        row = self.mine(relay, at)
        if row is None:
            return None
        row.attempts, row.holder, row.due_in = row.attempts + 1, None, DELAY
        if row.attempts >= ATTEMPTS:
            row.state, row.due_in = "dead", None
        return row.attempts, row.state

    def release(self, relay: str, at: int) -> list[int]:
        row = self.mine(relay, at)
        if row is None:
            return []
        row.holder, row.due_in = None, None
        return [at]

    def retry(self, at: int | None) -> list[int]:
        moved = [
            place
            for place, row in enumerate(self.rows)
            if (row.state == "dead" if at is None else place == at and row.state != "published" and row.holder is None)
        ]
        for place in moved:
            self.rows[place] = Row()
        return moved

    def pass_time(self, seconds: float) -> None:
        for row in self.rows:
            row.due_in = None if row.due_in is None else row.due_in - seconds

    def listed(self, state: str) -> list[tuple[int, int, str | None]]:
        found = [(at, row.attempts, row.holder) for at, row in enumerate(self.rows) if row.state == state]
        return found[::-1]


class Outbox:
    """A driver's outbox, its rows named by the order they were staged in."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ids: list[UUID] = []

    def do(self, name: str, *given: Any) -> Any:
        store = self._world.outbox
        if name == "stage":
            self._ids += [answer.id for answer in store.stage([new_job("mail") for _ in range(given[0])])]
            return None
        if name == "pass":
            return self._world.hands.pass_time(given[0])
        if name == "claim":
            taken = store.claim(given[0], limit=given[1], lease_seconds=LEASE)
            return self._places([row.job.id for row in taken.rows])
        if name == "retry":
            return self._places(store.retry(None if given[0] is None else [self._id(given[0])]))
        relay, row = given[0], self._id(given[1])
        if name == "refuse":
            refused = store.refuse(row, relay, error="no", delay_seconds=DELAY, attempts=ATTEMPTS)
            return None if refused is None else (refused.attempts, refused.status)
        return self._places(store.publish([row], relay) if name == "publish" else store.release([row], relay))

    def listed(self, state: Any) -> list[tuple[int, int, str | None]]:
        rows = self._world.outbox.list(status=state)
        return [(self._ids.index(row.job.id), row.attempts, row.claimed_by) for row in rows]

    def _id(self, at: int) -> UUID:
        return self._ids[at] if at < len(self._ids) else UUID(int=7)

    def _places(self, ids: list[UUID]) -> list[int]:
        return [self._ids.index(one) for one in ids]


def expected(model: Model, name: str, *given: Any) -> Any:
    if name == "stage":
        model.rows += [Row() for _ in range(given[0])]
        return None
    if name == "pass":
        return model.pass_time(given[0])
    return getattr(model, name)(*given)


@pytest.mark.parametrize("kind", ["memory", "postgres"])
def test_every_life_of_a_staged_job_is_the_model_s(kind: str, request: pytest.FixtureRequest) -> None:
    """D-22, S-360, S-361, S-365: claims, marks, failures, retries and lapsed leases in any order."""

    @settings(max_examples=25 if kind == "postgres" else 50, suppress_health_check=list(HealthCheck))
    @given(operations=OPERATIONS)
    def live(operations: list[tuple[Any, ...]]) -> None:
        world = empty_world(kind, request)
        outbox, model = Outbox(world), Model()
        for operation in operations:
            assert outbox.do(*operation) == expected(model, *operation), operation
            for state in ("pending", "dead"):
                assert outbox.listed(state) == model.listed(state), operation

    live()
