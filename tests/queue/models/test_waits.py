"""Publications, waits, timeouts and wrong clocks, interleaved between open transactions, against a small model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rowsweep.queue.contract import Transaction
from rowsweep.queue.memory.driver import MemoryDriver
from rowsweep.queue.records import Job
from rowsweep.queue.stores.events import Event, NewEvent
from rowsweep.queue.stores.steps import Step
from rowsweep.queue.verdicts import Done, Park
from tests.queue.conftest import empty_world
from tests.queue.world import World, event_in, new_event

TIMEOUT_SECONDS = 150.0
PASSING_SECONDS = 100.0
UNENDING_SECONDS = 1e7
KEYS = st.sampled_from([None, None, "a"])
COMMITS = st.sampled_from([True, True, False])
SKEWS = st.sampled_from([0.0, 0.0, -3_600.0, 30.0])


class Undone(Exception):
    """Roll a session back."""


@dataclass(eq=False)
class Wait:
    """What the model knows of one run's wait; `asked` is how many events had been committed when it first asked."""

    job: Job
    key: str | None
    asked: int | None = None
    waited: float = 0.0
    is_parked: bool = False
    is_due: bool = False
    was_met: bool = False

    @property
    def is_late(self) -> bool:
        return self.waited >= TIMEOUT_SECONDS


@dataclass(eq=False)
class Session:
    """One open transaction: what it published, and the waits whose rows it holds."""

    stack: ExitStack
    tx: Transaction | None
    published: list[NewEvent] = field(default_factory=list)
    skews: list[float] = field(default_factory=list)
    met: list[Wait] = field(default_factory=list)


class WaitsMachine:
    """Drive one driver and the model side by side; over memory a session's publications happen at its commit."""

    def __init__(self, world: World, data: st.DataObject) -> None:
        self.world = world
        self.data = data
        self.is_memory = isinstance(world.driver, MemoryDriver)
        self.waits: list[Wait] = []
        self.sessions: list[Session] = []
        self.order: dict[UUID, int] = {}

        self.waits += [Wait(self._running(f"w{at}"), key) for at, key in enumerate([None, None, "a"])]

    def ask(self) -> None:
        wait = self._some(lambda wait: not wait.is_parked)
        if wait is None:
            return
        if wait.asked is None:
            wait.asked = len(self.order)
        step = self.world.wait(wait.job, key=wait.key, timeout_seconds=TIMEOUT_SECONDS)
        expected = self._answer_to(wait, step)
        if expected is not None:
            assert event_in(step).id == expected.id
        else:
            assert step.status == ("timed-out" if wait.is_late else "waiting")
        if step.status != "waiting":
            assert self.world.settle(wait.job, Done()) is True
            self.waits.remove(wait)
            self.waits.append(Wait(self._running(wait.job.name), wait.key))

    def park(self) -> None:
        wait = self._some(lambda wait: not wait.is_parked and wait.asked is not None, held=True)
        if wait is None:
            return
        step = self.world.steps.get(wait.job.run_id, "wait")
        assert step is not None
        answer = self.world.settle(wait.job, Park(wake_at=step.wake_at))
        assert answer is (None if self._is_held(wait) else True)
        if answer:
            wait.is_parked = True
            wait.is_due = wait.was_met or (self.is_memory and self._answer_to(wait, step) is not None)

    def claim(self) -> None:
        names = [wait.job.name for wait in self.waits]
        taken = (
            {job.name: job for job in self.world.claim(*names, visibility_seconds=UNENDING_SECONDS).jobs}
            if names
            else {}
        )
        due = [wait for wait in self.waits if wait.is_parked and (wait.is_due or wait.is_late)]
        expected = [wait for wait in due if not self._is_held(wait)]
        assert set(taken) == {wait.job.name for wait in expected}
        for wait in expected:
            wait.job, wait.is_parked, wait.is_due, wait.was_met = taken[wait.job.name], False, False, False

    def poll(self) -> None:
        names = [wait.job.name for wait in self.waits]
        self.world.workers.look(queues=["default"], names=names, announce=None, poll=names)
        for wait in self.waits:
            step = self.world.steps.get(wait.job.run_id, "wait")
            if wait.is_parked and not self._is_held(wait) and step is not None and self._has_missed(wait, step):
                wait.is_due = True

    def publish(self) -> None:
        """Publish in an open transaction or a new one, of which there may be two."""
        key, skew = self.data.draw(KEYS), self.data.draw(SKEWS)
        session = self.data.draw(st.sampled_from([*self.sessions, None])) if self.sessions else None
        if session is None and len(self.sessions) < 2:
            session = self._opened()
        if session is None:
            return
        event = new_event("paid", key=key, ttl_seconds=UNENDING_SECONDS)
        session.published.append(event)
        session.skews.append(skew)
        if session.tx is not None:
            session.met += self._send(session, session.tx, event, skew)

    def close(self) -> None:
        if not self.sessions:
            return
        session, commits = self.data.draw(st.sampled_from(self.sessions)), self.data.draw(COMMITS)
        self.sessions.remove(session)
        if self.is_memory and commits:
            session.tx = session.stack.enter_context(self.world.driver.transaction())
            for event, skew in zip(session.published, session.skews, strict=True):
                session.met += self._send(session, session.tx, event, skew)
        if not commits:
            self._roll_back(session)
            return
        session.stack.close()
        for event in session.published:
            self.order[event.id] = len(self.order)
        for wait in session.met:
            wait.is_due, wait.was_met = wait.is_parked, not wait.is_parked and not self.is_memory

    def pass_time(self) -> None:
        if self.sessions:
            return
        self.world.hands.pass_time(PASSING_SECONDS)
        for wait in self.waits:
            wait.waited += PASSING_SECONDS if wait.asked is not None else 0.0

    def teardown(self) -> None:
        for session in self.sessions:
            self._roll_back(session)

    def _opened(self) -> Session:
        stack = ExitStack()
        tx = None if self.is_memory else stack.enter_context(self.world.driver.transaction())
        self.sessions.append(Session(stack, tx))
        return self.sessions[-1]

    def _running(self, name: str) -> Job:
        self.world.enqueue(name)
        return self.world.take(name, visibility_seconds=UNENDING_SECONDS)

    def _send(self, session: Session, tx: Transaction, event: NewEvent, skew: float) -> list[Wait]:
        """Publish in a transaction whose clock is off, and answer the waits whose rows it met."""
        fitting = [wait for wait in self.waits if wait.key == event.key and wait.asked is not None]
        asleep = [wait for wait in fitting if not (wait.is_parked and (wait.is_due or wait.is_late))]
        met = [wait for wait in asleep if wait in session.met or not self._is_held(wait)]
        assert tx.stores.events is not None
        answer = tx.stores.events.publish(event)
        fresh = [wait for wait in met if wait not in session.met]
        assert answer.due_queues == ["default"] * any(wait.is_parked for wait in fresh)
        self._set_wrong(tx, event.id, skew)
        return fresh

    def _set_wrong(self, tx: Transaction, event_id: UUID, skew: float) -> None:
        if isinstance(self.world.driver, MemoryDriver):
            kept = self.world.driver._state.events
            moved = kept[event_id].event.published_at + timedelta(seconds=skew)
            kept[event_id] = replace(kept[event_id], event=replace(kept[event_id].event, published_at=moved))
        else:
            statement = "update x_job_events set published_at = published_at + make_interval(secs => %s) where id = %s"
            tx.connection.execute(statement, [skew, event_id])

    def _answer_to(self, wait: Wait, step: Step) -> Event | None:
        """Answer the earliest event that was committed after the question, or is dated at or after it."""
        assert wait.asked is not None
        fitting = [event for event in self.world.events.list(name="paid") if event.key == wait.key]
        after = [
            event for event in fitting if self.order[event.id] >= wait.asked or event.published_at >= step.started_at
        ]
        return min(after, key=lambda event: (event.published_at, event.id), default=None)

    def _has_missed(self, wait: Wait, step: Step) -> bool:
        """Say whether a poll finds an event for a wait: one that was committed after the question."""
        if wait.asked is None or self.is_memory:
            return wait.asked is not None and self._answer_to(wait, step) is not None
        events = self.world.events.list(name="paid")
        return any(event.key == wait.key and self.order[event.id] >= wait.asked for event in events)

    def _is_held(self, wait: Wait) -> bool:
        return not self.is_memory and any(wait in session.met for session in self.sessions)

    def _some(self, fits: Callable[[Wait], bool], *, held: bool = False) -> Wait | None:
        """Draw a wait; one whose row an open transaction holds only where asking does not wait for that."""
        found = [wait for wait in self.waits if fits(wait) and (held or not self._is_held(wait))]
        return self.data.draw(st.sampled_from(found)) if found else None

    def _roll_back(self, session: Session) -> None:
        try:
            with session.stack:
                raise Undone
        except Undone:
            session.met.clear()


MOVES = [
    *[WaitsMachine.ask] * 4,
    *[WaitsMachine.park] * 2,
    *[WaitsMachine.claim] * 2,
    *[WaitsMachine.publish] * 3,
    *[WaitsMachine.close] * 3,
    WaitsMachine.poll,
    WaitsMachine.pass_time,
]


@pytest.mark.parametrize(
    ("kind", "examples"),
    [
        ("memory", 30),
        ("postgres", 6),
        pytest.param("memory", 100, marks=pytest.mark.slow),
        pytest.param("postgres", 20, marks=pytest.mark.slow),
    ],
)
def test_no_publication_is_lost_or_answered_twice(kind: str, examples: int, request: pytest.FixtureRequest) -> None:
    """N-047, N-048, S-169, S-170, S-171: whatever is open, late or wrongly dated when it happens."""

    @settings(
        max_examples=examples,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data(), moves=st.lists(st.sampled_from(MOVES), min_size=100, max_size=100))
    def interleave(data: st.DataObject, moves: list[Callable[[WaitsMachine], None]]) -> None:
        machine = WaitsMachine(empty_world(kind, request), data)
        try:
            for move in moves:
                move(machine)
        finally:
            machine.teardown()

    interleave()
